"""How far a run is, by its metrics.jsonl."""
import pathlib


def has_steps(run):
    """Whether the line of a step is there: the first line tells of the run alone."""
    try:
        return '"loss"' in (pathlib.Path(run) / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return False
