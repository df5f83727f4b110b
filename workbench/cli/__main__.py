"""``python -m workbench.cli``."""

from workbench.cli.program import main

if __name__ == "__main__":
    main()
