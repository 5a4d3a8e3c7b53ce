"""Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- python hello.py"""

import json

import accel

state = accel.PartialState()
ranks = accel.collectives.gather(accel.full([1], state.process_index, "int64"))
state.print(json.dumps(ranks.tolist(), separators=(",", ":")))
state.wait_for_everyone()
