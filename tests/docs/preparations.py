# SPDX-License-Identifier: Apache-2.0
"""What pages take for granted: the tests of those that have their own, and what is there before the first command of the others."""

# {page: {language of blocks: test}}: pages of a binding, which its own tests take their blocks from.
TESTED_ELSEWHERE = {
    "bindings/julia/README.md": {"julia": "bindings/julia/test/readme.jl: blocks", "sh": "bindings/julia/test/readme.jl: command"},
    "bindings/rust/README.md": {"rust": "bindings/rust/accel/src/lib.rs: README", "sh": "examples/rust/tests/readme.rs: README"},
    "bindings/rust/accel-sys/README.md": {"rust": "bindings/rust/cargo_test.sh: linked"},
    "bindings/rust/accel/README.md": {"rust": "bindings/rust/accel/src/lib.rs: README", "sh": "examples/rust/tests/readme.rs: README"},
    "bindings/python/README.md": {"python": "bindings/python/tests/test_documents.py: test_readme"},
    "docs/a_binding_in_an_hour.md": {"lua": "tests/abi/cdef_test.py: LuaJIT", "js": "tests/docs/foreign_programs_trial.py: js",
                                     "java": "tests/docs/foreign_programs_trial.py: java", "go": "bindings/go/callback_test.go: panic"}}

IN_THE_SOURCE = "ln -s {root}/examples {root}/bindings {root}/build {root}/include . && for page in {root}/*.md; do ln -s $page .; done\n"
PROGRAM = """cat > train.c <<'END'
#include <accel.h>
int main(int count, char **arguments) {{
  accel_state_t *state = NULL;
  (void)count, (void)arguments;
  if (accel_state_create(NULL, &state) < 0) return 1;
  const accel_status_t status = accel_end_training(state);
  accel_state_release(state);
  return status < 0;
}}
END
cc train.c $(pkg-config --cflags --libs accel) -o train && cp train program && cp train.c program.c
"""
SCRIPT = """cat > train.py <<'END'
#!/usr/bin/env python3
import accel
accel.Accelerator().end_training()
END
chmod +x train.py && mkdir -p project && cp train.py project/ && touch project/__init__.py
"""
PROJECT = """cat > save.py <<'END'
import accel, sys
from accel import Accelerator, ProjectConfiguration, nn
accelerator = Accelerator(project_config=ProjectConfiguration(project_dir=sys.argv[1], automatic_checkpoint_naming=True))
accelerator.prepare(nn.Linear(2, 2))
for _ in range(3):
    accelerator.save_state()
accelerator.end_training()
END
python3 save.py runs/first
"""
MODEL = """cat > save.py <<'END'
import accel, json
from accel import Accelerator, nn
configuration = {{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}}
open("config.json", "w").write(json.dumps(configuration))
model = nn.from_config("config.json")
Accelerator().save_model(model, "checkpoint")
END
python3 save.py && cp checkpoint/model.safetensors .
"""
SPLIT = """echo '{{"model_type": "gpt2", "vocab_size": 256, "n_positions": 2048, "n_embd": 64, "n_layer": 2, "n_head": 4}}' > config.json
"""
RUNS = """mkdir -p runs && for name in a b; do
  {build}/examples/c/train_gpt --text {root}/README.md --log-dir runs/$name --steps 3 --layers 1 --width 32 \\
    --context 16 --batch 4 --log-every 1 --eval-every 0 --sample-length 8
done
"""

# {page: {words of its commands: words of this machine}}
FILLED_IN = {
    "docs/devices.md": {"/opt/vendor/libtorch_npu.so": "{build}/tests/simulated_device/libsimulated_device.so", "DEVICE=npu": "DEVICE=sim"},
    "docs/observability.md": {"accel report runs --live": "timeout --signal=INT --preserve-status 2 accel report runs --live"},
    "examples/README.md": {"./train": "{build}/examples/c/train"},
}
# Pages whose commands write into the home of their reader.
WITH_A_HOME = ("docs/configuration.md",)


def filled_in(page, text, root, build):
    for words, here in FILLED_IN.get(page, {}).items():
        text = text.replace(words, here.format(root=root, build=build))
    return text


# {page: commands of the shell}, with the places of source and build in braces.
OF = {
    "bindings/python/README.md": IN_THE_SOURCE + "cp examples/python/hello.py .\n",
    "examples/python/README.md": "cp {root}/examples/python/*.py .\n",
    "docs/checkpoints.md": PROJECT,
    "docs/configuration.md": SCRIPT + "mkdir -p ~/.zfunc ~/.config/fish/completions\n",
    "docs/devices.md": PROGRAM,
    "docs/installation.md": PROGRAM,
    "docs/launching.md": PROGRAM + SCRIPT + "echo '{{\"distributed_type\": \"NO\", \"mixed_precision\": \"bf16\"}}' > job.yaml\n",
    "docs/observability.md": IN_THE_SOURCE + PROGRAM + RUNS,
    "docs/parallelism.md": SCRIPT + SPLIT,
    "docs/sharding.md": MODEL,
}
