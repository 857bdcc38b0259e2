"""rpml demo: learn an embedding without labels, print the table, write the figure."""

from pathlib import Path

from rpml.cli import options as opt
from rpml.cli.command import Console, command

EXAMPLES = """
  rpml demo -o demo-output
  rpml demo code
"""


@command
def run(
    *,
    what: str = opt.argument("[drawings|code]", "Characters or programs.", default="drawings"),
    output: str = opt.output(
        "FOLDER", "Folder for the table, the model and the figure.", default="demo-output"
    ),
    seed: int = opt.SEED,
    console: Console,
) -> None:
    """Demonstrate RPML on programs or handwritten characters.

    It is scored on problems, or alphabets, that were not used for training.
    """
    from rpml.pages import demo

    demos = {"drawings": demo.demonstrate_drawings, "code": demo.demonstrate_code}
    opt.check_choice("the demo", what, demos)
    result = demo.run(demos[what], Path(output), seed, console.note)
    console.result(result, demo.text(result))
