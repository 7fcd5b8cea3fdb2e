"""Measurements beside a peer or a plain implementation in the same run: `python -m benchmarks [NAME...]`.

They never assert times. `suite` knows the names, `bench_*` hold what is measured, `growth_*` the curves; `figure`, `row` and
`curve` are the values, `table`, `plot` and `record` what people read.
"""
