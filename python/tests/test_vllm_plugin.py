"""quire.vllm as a package: what importing it costs, substitute(), the plugin, versions."""
import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quire


def python(program, *paths, **env):
    """Runs a program in a process of its own; its output, or its last line of error."""
    path = os.pathsep.join(map(str, (*paths, *filter(None, sys.path))))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path, **env})
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


@pytest.fixture
def old_vllm(tmp_path):
    """A folder with a vLLM of another version."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("__version__ = '0.19.1'\n")
    return tmp_path


@pytest.fixture
def platform(request):
    """The line that a program begins with where vLLM has no GPU; skips without vLLM."""
    name = request.config.getoption("--platform")
    if name:
        importlib.import_module(name)
    pytest.importorskip("vllm")
    pytest.importorskip("quire._vllm")
    return f"import {name}\n" if name else ""


def release() -> str:
    """The folder of the vLLM that is installed."""
    from quire.vllm.version import check

    return check()


@pytest.mark.parametrize("version", ["0.20.0", "0.20.2", "0.32.0", "0.32.1rc1"])
def test_the_releases_that_are_served(tmp_path, version):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    program = "from quire.vllm.version import check, profile; print(check(), profile())"
    expected = {"0.20": "_v020 1", "0.32": "_v032 2"}[version[:4]]
    assert python(program, tmp_path) == expected


@pytest.mark.parametrize("version", ["0.2.0", "0.21.0", "0.31.0", "0.33.0", "0.320.0", "1.20.0"])
def test_releases_between_are_refused(tmp_path, version):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    assert python("import quire.vllm; quire.vllm.Scheduler", tmp_path) == (
        "ImportError: quire.vllm makes the decisions of vLLM 0.20.x and 0.32.x; this is vLLM "
        + version)


@pytest.mark.parametrize("wish", ["", "0"])
def test_the_plugin_is_nothing_unless_asked_for(wish):
    program = ("import sys\nfrom quire.vllm.plugin import register\nregister()\n"
               "print([name for name in ('vllm', 'torch', 'quire._vllm') if name in sys.modules])")
    assert python(program, QUIRE_VLLM=wish) == "[]"


def test_a_wish_that_is_none():
    program = "from quire.vllm.plugin import register\nregister()"
    assert python(program, QUIRE_VLLM="yes") == \
        "ValueError: QUIRE_VLLM='yes': must be 1, try, or 0"


@pytest.mark.parametrize("use", ["from quire.vllm import Scheduler",
                                 "import quire.vllm; quire.vllm.substitute()",
                                 "from quire.vllm.plugin import register; register()"])
def test_another_version_is_refused(old_vllm, use):
    assert python(use, old_vllm, QUIRE_VLLM="1") == \
        "ImportError: quire.vllm makes the decisions of vLLM 0.20.x and 0.32.x; this is vLLM 0.19.1"


def test_another_version_is_left_alone_on_trial(old_vllm):
    program = ("import logging\nlogging.basicConfig(format='%(message)s')\n"
               "from quire.vllm.plugin import register\nregister()\nraise SystemExit(1)")
    assert python(program, old_vllm, QUIRE_VLLM="try") == (
        "quire.vllm makes the decisions of vLLM 0.20.x and 0.32.x; this is vLLM 0.19.1; vLLM's own "
        "scheduler is used")


def test_names():
    import quire.vllm

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        quire.vllm.nothing
    assert {"Scheduler", "get_request_block_hasher", "substitute"} <= set(dir(quire.vllm))


def test_substitute_and_back(platform):
    import quire.vllm
    from quire.vllm.substitution import PLACES

    users = [importlib.import_module(name) for name in
             ("vllm.v1.core.sched.scheduler", "vllm.v1.core.kv_cache_utils", "vllm.v1.engine.core")]
    before = [dict(vars(module)) for module in users]
    with quire.vllm.substitute() as done:
        assert done.names == tuple(PLACES)
        for name, (theirs, _ours) in PLACES.items():
            ours = getattr(quire.vllm, name)
            assert getattr(sys.modules[theirs], name) is ours
            for module, old in zip(users, before):
                assert name not in old or vars(module)[name] is ours, (module, name)
        assert quire.vllm.substitute().names == ()
    for module, old in zip(users, before):
        assert all(vars(module)[name] is value for name, value in old.items())


def test_substitute_some(platform):
    import quire.vllm

    with quire.vllm.substitute(only=["get_request_block_hasher"]) as done:
        assert done.names == ("get_request_block_hasher",)
    with pytest.raises(ValueError, match="'motor' is not one of Scheduler, "):
        quire.vllm.substitute(only=["motor"])


PLUGIN = """
import vllm.v1.engine.core as core
from quire.vllm.plugin import register
from vllm.config import SchedulerConfig
register()
register()
made = [SchedulerConfig.default_factory(**given).get_scheduler_cls() for given in (
    {'async_scheduling': False}, {'async_scheduling': True},
    {'scheduler_cls': 'vllm.v1.core.sched.scheduler.Scheduler'})]
print(*(f'{each.__module__}.{each.__qualname__}' for each in made),
      core.get_request_block_hasher.__module__)
"""


def test_the_plugin_gives_quires_scheduler(platform):
    assert python(platform + PLUGIN, QUIRE_VLLM="1").splitlines()[-1].split() == [
        f"quire.vllm.{release()}.scheduler.Scheduler",
        f"quire.vllm.{release()}.scheduler.AsyncScheduler",
        "vllm.v1.core.sched.scheduler.Scheduler", "quire.vllm.hasher"]


def test_what_quire_refuses_is_vllms_on_trial(platform, monkeypatch):
    from quire.vllm import plugin, version

    config = version.part("config")

    def refuse(_config):
        raise NotImplementedError("quire.vllm: a thing of tomorrow")

    monkeypatch.setattr(config, "refuse", refuse)
    class Ours:
        def __init__(self, *_given, **_named):
            pass

    make = plugin.trial_of(Ours, lambda *_given, **_named: "theirs")
    assert make("config", log_stats=True) == "theirs"
    monkeypatch.setattr(config, "refuse", lambda _config: None)
    assert type(make("config")) is Ours


def test_a_limit_of_quires_on_trial(platform, monkeypatch, caplog):
    """The connector that Quire's scheduler had is shut down before vLLM's gets one."""
    import logging
    import types

    import vllm_kit
    from quire.vllm import AsyncScheduler, Scheduler, plugin
    from vllm.v1.core.sched import async_scheduler, scheduler

    class Connector(vllm_kit.connector_class()):
        num_shutdowns = 0

        def shutdown(self):
            self.num_shutdowns += 1

    trial = types.ModuleType("trial")
    trial.Scheduler = plugin.trial_of(Scheduler, scheduler.Scheduler)
    trial.AsyncScheduler = plugin.trial_of(AsyncScheduler, async_scheduler.AsyncScheduler)
    monkeypatch.setitem(sys.modules, "trial", trial)
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)  # to caplog
    caplog.set_level(logging.WARNING, logger="vllm.quire")
    for num_seqs, kind, num_shutdowns in ((16, Scheduler, 0), (70_000, scheduler.Scheduler, 1)):
        connector = Connector()
        made = vllm_kit.make(connector=connector, max_num_seqs=num_seqs, module="trial")
        assert type(made) is kind and connector.num_shutdowns == num_shutdowns
    assert "invalid max_num_seqs 70000" in caplog.text
    with pytest.raises(ValueError, match="invalid max_num_seqs 70000"):
        vllm_kit.make(max_num_seqs=70_000)


def test_the_example(platform, request):
    example = Path(__file__).resolve().parents[2] / "examples" / "vllm_dropin.py"
    if not example.exists():
        pytest.skip("examples/ is not there")
    name = request.config.getoption("--platform")
    done = subprocess.run([sys.executable, example, *(["--platform", name] if name else [])],
                          capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    assert done.returncode == 0, done.stderr
    assert "the same tokens and blocks in every step" in done.stdout


def test_the_stub_names_what_is_there():
    module = pytest.importorskip("quire._vllm")
    stub = ast.parse((Path(quire.__file__).parent / "_vllm.pyi").read_text())
    told = {node.name: {each.name if isinstance(each, ast.FunctionDef) else each.target.id
                        for each in node.body
                        if isinstance(each, ast.FunctionDef | ast.AnnAssign)}
            for node in stub.body if isinstance(node, ast.ClassDef)}
    found = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    assert set(told) == set(found)
    for name, members in told.items():
        if "__getattr__" in members:  # an inner class, of which a class of quire.vllm is the face
            continue
        public = {each for each in vars(found[name]) if not each.startswith("_")}
        assert public == {each for each in members if not each.startswith("_")}, name


def test_nothing_is_recorded_of_an_unknown_release(old_vllm):
    said = python("from quire.vllm.plugin import register; register(); print('registered')", old_vllm,
                  QUIRE_RECORD="x", QUIRE_VLLM="")
    assert said == "registered"


def test_the_scheduler_class_is_recorded_once(platform):
    said = python(platform + """
from quire.vllm.plugin import register
register()
from vllm.config import SchedulerConfig
first = SchedulerConfig.get_scheduler_cls
register()
print(SchedulerConfig.get_scheduler_cls is first, first._is_recording)
""", QUIRE_RECORD="x", QUIRE_VLLM="")
    assert said == "True True"
