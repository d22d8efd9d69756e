"""lit: text tests of the tools, and the examples. The tests are the files under test/ and examples/ whose names end as
the lit.local.cfg of the folder says."""

import os
import sys

import lit.formats

config = globals()["config"]  # provided by lit

root = os.path.dirname(os.path.abspath(__file__))
config.name = "symshape"
config.test_format = lit.formats.ShTest()
config.test_source_root = root
config.test_exec_root = os.path.join(root, "build", "lit")

# The tools of the environment that lit itself runs in.
bin_folder = os.path.dirname(os.path.abspath(sys.executable))
config.environment["PATH"] = os.pathsep.join([bin_folder, os.environ.get("PATH", "")])
if "PYTHONPATH" in os.environ:  # another checkout than the one that is installed
    config.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
config.substitutions.append(("%python", sys.executable))
