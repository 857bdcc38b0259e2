"""One module per command, each with `run` and `EXAMPLES`; `rpml.cli.app` names them."""
