"""What `pinfold demo` shows: a captured machine and a few pods. Shipped inside the wheel."""
