"""rpml update: train a model on new vectors."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions, load_model

EXAMPLES = """
  rpml fit vectors.npy -o model.rpml --keep-exemplars
  rpml update model.rpml new.npy -o model2.rpml
  rpml update model.rpml new.npy --old vectors.npy -o model2.rpml
"""


@command
def run(
    *,
    model: str = opt.MODEL,
    features: str = opt.FEATURES,
    output: str = opt.output("MODEL", "Model file to write."),
    old: str | None = opt.text("FEATURES", "Vectors seen before, to update the whitening too."),
    max_iter: int = opt.number("Maximum number of iterations.", minimum=0, default=10),
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Train a model further on new vectors.

    Embed stored rows again with the new model: `drift` says how far embeddings have moved.
    """
    from rpml.estimator.features import check_features
    from rpml.estimator.fitted import save_model
    from rpml.io.container import check_model_output
    from rpml.runtime.files import locked

    target = check_model_output(output, force, [model, features, old])
    fitted = load_model(model)
    names = getattr(fitted, "feature_names_in_", None)
    sources = [reading.open(path) for path in (features, old) if path is not None]
    fitted = [check_features(fitted, source, model) for source in sources].pop()
    before = len(fitted.exemplars_.rows) if hasattr(fitted, "exemplars_") else 0
    with locked(target):
        data = [source.load() for source in sources]
        rows = [loaded.values for loaded in data]
        fitted.set_params(callback=console.reporter())
        fitted.update(*rows, max_iter=max_iter)
        if names is not None:
            fitted.feature_names_in_ = names
        for loaded in data:
            loaded.check_unchanged()
        save_model(fitted, target, {"command": "update"}, exemplars=True, overwrite=force)
    fields = {
        "output": str(target),
        "new_rows": len(rows[0]),
        "exemplars": len(fitted.exemplars_.rows),
        "new_exemplars": len(fitted.exemplars_.rows) - before,
        "iterations": fitted.n_iter_,
        "drift": fitted.drift_,
    }
    console.result(fields, fields)
