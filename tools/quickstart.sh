#!/bin/sh
# From nothing to a trained model: set-up, build, and the main job, a GPT that two processes train on the Python sources
# of this machine. Arguments go to the training program, see `train_gpt --help`.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh
tools/build.sh src/launch/accel src/comm/ucx/libaccel_ucx.so examples/c/train_gpt examples/c/hello

accel=build/release/src/launch/accel
examples=build/release/examples/c
checkpoints=build/quickstart
mkdir -p "$checkpoints"
"$accel" launch --num-processes 2 --mixed-precision bf16 -- \
  "$examples/train_gpt" --steps 600 --checkpoint-dir "$checkpoints" --checkpoint-every 200 "$@"
cat <<END

What to try next:
  go on from the last checkpoint   tools/quickstart.sh --resume --steps 1200
  your own text                    tools/quickstart.sh --text FILE_OR_FOLDER
  all settings                     $examples/train_gpt --help
  a 20-line program                $accel launch --num-processes 2 $examples/hello
END
