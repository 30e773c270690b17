"""Made-up scores for tests of tables, pictures and verdicts: no run behind them."""

from elmo_fast.report.plan import ReportSettings, cells


def settings(folder, **changes):
    """Settings over files that exist and hold nothing."""
    paths = {}
    for name in ("train", "dev", "test"):
        paths[f"{name}_path"] = str(folder / f"{name}.conllu")
        (folder / f"{name}.conllu").touch()
    values = {"model": "m", "save_dir": str(folder / "out"), "column": ("upos", "xpos"), "shares": (0.1, 1.0), **paths}
    return ReportSettings(**{**values, **changes})


def scored(settings, layers, score):
    """Every cell scored by `score(cell, seed)`; mixes that lean on the first layer."""
    done = []
    for cell in cells(settings, layers):
        runs = []
        for seed in range(settings.seeds):
            places = {"input": ["input"], "output": ["output"], "both": ["input", "output"]}.get(
                cell.changes["elmo"], []
            )
            mixed = cell.changes.get("layer") == "mix"
            weights = {place: [0.5, *[0.5 / (layers - 1)] * (layers - 1)] for place in places} if mixed else {}
            scores = {"f1": score(cell, seed), "spans": False}
            epochs = [{"score": scores["f1"] * part} for part in (0.95, 1.0, 0.9)]
            run = {"test": scores, "dev": scores, "mix_weights": weights, "seconds": 1.0}
            runs.append({**run, "epochs": epochs, "best_epoch": 2, "sentences": 100})
        done.append(cell._replace(runs=runs))
    return done
