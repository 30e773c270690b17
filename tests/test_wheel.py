"""Contents of a wheel: the package's files, the compiled module, and nothing else; a wheel of one Python."""

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Files of a checkout that building or testing from an sdist does not need.
NOT_PACKED = (".", "docs/")


@pytest.fixture(scope="module")
def tracked():
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return {name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def packed(tracked, tmp_path_factory):
    """The folder of a wheel and an sdist of the tracked files, with a library in place of a compiled one."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked:
        if not name.startswith(NOT_PACKED):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    (tree / "elmo_fast" / "_C.cpython-310-x86_64-linux-gnu.so").touch()
    (tree / "elmo_fast" / "__pycache__").mkdir()
    (tree / "elmo_fast" / "__pycache__" / "old.cpython-311.pyc").touch()
    (library := tree / "library.so").write_bytes(b"compiled")
    (tree / "build.py").write_text(
        "import pathlib, runpy, shutil, sys\n"
        "import setuptools\n"
        "setup = setuptools.setup\n"
        "def packing(cmdclass, **given):\n"
        "    def compile(self, target):\n"
        "        target.parent.mkdir(parents=True, exist_ok=True)\n"
        f"        shutil.copyfile({str(library)!r}, target)\n"
        "    cmdclass['build_ext'].compile = compile\n"
        "    setup(cmdclass=cmdclass, **given)\n"
        "setuptools.setup = packing\n"
        "runpy.run_path('setup.py', run_name='__main__')\n"
    )
    command = [sys.executable, "build.py", "-q", "sdist", "-d", dist, "bdist_wheel", "-d", dist]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return dist


def test_the_wheel_is_the_package_and_its_module_for_this_python(packed, tracked):
    """Not those of other Pythons, which are next to it in a checkout that was built for several."""
    (path,) = packed.glob("*.whl")
    assert path.name.split("-", 2)[2].startswith("cp{0}{1}-cp{0}{1}-linux".format(*sys.version_info))
    module = f"elmo_fast/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert names == {name for name in tracked if name.startswith("elmo_fast/")} | {module}
        assert wheel.read(module) == b"compiled"


def test_licence_and_notices_are_in_both(packed):
    """Of the package, and of what its model was trained on."""
    (wheel,), (sdist,) = packed.glob("*.whl"), packed.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened, tarfile.open(sdist) as archive:
        for names in (opened.namelist(), archive.getnames()):
            for notice in ("/LICENSE", "elmo_fast/models/mini/README.md"):
                assert [name for name in names if name.endswith(notice)], notice


def test_the_sdist_builds_and_tests_and_holds_nothing_compiled(packed, tracked):
    (path,) = packed.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in (m.name for m in archive.getmembers() if m.isfile())}
    generated = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("elmo_fast.egg-info/")}
    assert names - generated == {name for name in tracked if not name.startswith(NOT_PACKED)}
