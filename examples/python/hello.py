"""Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- python hello.py"""

import json

import accel

state = accel.PartialState()
ranks = accel.collectives.gather(accel.tensor(state.process_index, device=state.device))
state.print(json.dumps(ranks.tolist(), separators=(",", ":")))
state.wait_for_everyone()
