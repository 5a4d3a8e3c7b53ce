#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained model: set-up, build, and the main job, a GPT that two processes train for 75 seconds on the Python
# sources of this machine. It says first what it will install and with which rights; with --check it ends there. Arguments go to the
# training program, see `train_gpt --help`.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh --check --lean
echo "quick start: builds into build/ (0.3 GB) and trains for 75 seconds; 4 to 12 minutes on two cores, downloads not counted"
[ "${1:-}" != --check ] || exit 0
tools/setup.sh --lean
tools/build.sh --lean src/cli/accel src/comm/ucx/libaccel_ucx.so examples/c/train_gpt examples/c/hello

accel=build/release/src/cli/accel
examples=build/release/examples/c
checkpoints=build/quickstart

# bf16 is fast only where the processor multiplies it; elsewhere each product is made of several instructions.
bf16=$("$accel" env | sed -n 's/^processor bf16 *//p')
case $bf16 in
  '' | none*)
    precision=no
    echo "precision: fp32, this processor has no bf16 instructions"
    ;;
  *)
    precision=bf16
    echo "precision: bf16, this processor has $bf16"
    ;;
esac

# A model so small that it has read a million bytes in this time even on two slow processors.
"$accel" launch --num-processes 2 --mixed-precision "$precision" -- \
  "$examples/train_gpt" --seconds 75 --layers 2 --width 128 --batch 4 --lr 0.004 --prompt "def " --temperature 0.7 \
  --checkpoint-dir "$checkpoints" --checkpoint-every 50% --log-dir "$checkpoints/runs" "$@"
if [ -d "$checkpoints/runs" ]; then # --log-dir may name another one
  printf '\nA page with the curves of this run: '
  "$accel" report "$checkpoints/runs" --output "$checkpoints/report.html"
fi
cat <<END

What to try next:
  75 seconds more, from there      tools/quickstart.sh --resume
  your own text                    tools/quickstart.sh --text FILE_OR_FOLDER
  all settings                     $examples/train_gpt --help
  a 20-line program                $accel launch --num-processes 2 $examples/hello
END
