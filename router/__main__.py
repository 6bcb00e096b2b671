"""`python -m router`: the same as the command `specroute`."""

from router.cli.main import main

if __name__ == "__main__":
    main()
