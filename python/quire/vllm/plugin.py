"""vLLM's general plugin `quire`: Quire's scheduler and block hasher without any flag.

    QUIRE_VLLM=1     vLLM's default scheduler is Quire's; a setup that Quire refuses ends with why
    QUIRE_VLLM=try   the same, but what is refused is left to vLLM, with a warning
    otherwise        nothing at all

    QUIRE_RECORD=FILE   the requests and decisions of the scheduler, whose ever it is, are recorded

vLLM calls register() in every process; nothing heavy is imported until an engine asks which
scheduler to use. A scheduler that is named by --scheduler-cls is used as it is.
"""
import functools
import logging
import os

logger = logging.getLogger("vllm.quire")
OFF, ON, TRY = ("", "0"), "1", "try"


def register() -> None:
    choose()
    if os.environ.get("QUIRE_RECORD"):
        record()


def choose() -> None:
    """Which scheduler is the default."""
    wish = os.environ.get("QUIRE_VLLM", "")
    if wish in OFF:
        return
    if wish not in (ON, TRY):
        raise ValueError(f"QUIRE_VLLM={wish!r}: must be 1, try, or 0")
    from .version import check

    try:
        check()
    except ImportError as refusal:
        if wish == ON:
            raise
        logger.warning("%s; vLLM's own scheduler is used", refusal)
        return
    install(is_trial=wish == TRY)


def install(is_trial: bool) -> None:
    """From here on a SchedulerConfig without a scheduler class of its own gives Quire's."""
    from vllm.config import SchedulerConfig

    theirs = SchedulerConfig.get_scheduler_cls
    if hasattr(theirs, "_is_quire"):
        return

    @functools.wraps(theirs)
    def get_scheduler_cls(self):
        from .substitution import substitute

        substitute(only=["get_request_block_hasher"])
        if self.scheduler_cls is not None:
            return theirs(self)
        from . import AsyncScheduler, Scheduler

        ours = AsyncScheduler if self.async_scheduling else Scheduler
        if is_trial:
            return trial_of(ours, theirs(self))
        logger.info("the scheduler is quire.vllm.%s", ours.__name__)
        return ours

    get_scheduler_cls._is_quire = True
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls


def trial_of(ours: type, theirs: type):
    """Makes Quire's scheduler, or vLLM's where Quire refuses the configuration, or has a limit that
    vLLM has not. Where vLLM refuses it too, vLLM's exception says why."""

    def make(vllm_config, *args, **kwargs):
        from .version import part

        try:
            part("config").refuse(vllm_config)
            made = ours(vllm_config, *args, **kwargs)
            logger.info("the scheduler is quire.vllm.%s", ours.__name__)
            return made
        except (NotImplementedError, ValueError, OverflowError, MemoryError) as refusal:
            logger.warning("%s; vLLM's own scheduler is used", refusal)
            return theirs(vllm_config, *args, **kwargs)

    return make


def record() -> None:
    """From here on the scheduler that vLLM makes is recorded."""
    from .version import check

    try:
        check()
    except ImportError as refusal:
        logger.warning("%s; nothing is recorded", refusal)
        return
    from vllm.config import SchedulerConfig

    inner = SchedulerConfig.get_scheduler_cls
    if hasattr(inner, "_is_recording"):
        return

    @functools.wraps(inner)
    def get_scheduler_cls(self):
        from .record import recording_of

        return recording_of(inner(self))

    get_scheduler_cls._is_recording = True
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
