"""The one base class of everything an operator can act on, and how the command line shows it."""


class AgentError(Exception):
    """An operator can act on this: `str(error)` says what happened and where, `hint` what to do next."""

    hint: str = ""
    exit_status: int = 3  # the environment; 1 is kept for "the answer is no", 2 for wrong use or bad input

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class BadInputError(AgentError):
    """A file, flag or record that pinfold was given is wrong."""

    exit_status = 2
