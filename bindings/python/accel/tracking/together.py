"""The trackers of an Accelerator: started, told and ended together."""

from ..state.process import PartialState
from .engine import EngineRun, EngineTracker
from .registry import LOGGER_TYPE_TO_CLASS
from .tracker import GeneralTracker


def start(chosen, project_name, logging_dir, config, init_kwargs, state):
    """The trackers of a project, running. Names and classes become trackers, instances stay."""
    trackers = [_made(entry, project_name, logging_dir, init_kwargs or {}) for entry in chosen]
    of_engine = [tracker for tracker in trackers if isinstance(tracker, EngineTracker)]
    if of_engine and PartialState().is_main_process:
        run = EngineRun(of_engine, config, state)
        trackers = [tracker for tracker in trackers if tracker not in of_engine or run.has(tracker)]
    own = [tracker for tracker in trackers if not isinstance(tracker, EngineTracker)]
    for tracker in own:
        tracker.start()
    for tracker in own if config is not None else ():
        tracker.store_init_configuration(config)
    return trackers


def _made(entry, project_name, logging_dir, init_kwargs):
    if isinstance(entry, GeneralTracker):
        return entry
    kind = entry if isinstance(entry, type) else LOGGER_TYPE_TO_CLASS[str(entry)]
    place = (logging_dir,) if kind.requires_logging_directory else ()
    return kind(project_name, *place, **init_kwargs.get(kind.name, {}))


def log(trackers, values, step, log_kwargs):
    """To every tracker, also when one fails; then the first failure is raised."""
    log_kwargs, runs = log_kwargs or {}, []

    def tell(tracker):
        kwargs = log_kwargs.get(tracker.name, {})
        run = getattr(tracker, "_run", None) if isinstance(tracker, EngineTracker) and not kwargs else None
        if run is None or not log_kwargs.keys().isdisjoint(run.names):
            tracker.log(values, step=step, **kwargs)
        elif run not in runs:  # all of its trackers have the values
            runs.append(run)
            run.log(values, step)

    each(trackers, tell)


def finish(trackers):
    """Ends every tracker, also when one fails; then the first failure is raised."""
    each(trackers, lambda tracker: tracker.finish())


def each(trackers, function):
    failures = []
    for tracker in trackers:
        try:
            function(tracker)
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
