# SPDX-License-Identifier: Apache-2.0
"""A limit of 0 for page-locked memory: batches reach the device as they are."""

import resource

resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

import accel
from accel import Accelerator, DataLoader, DataLoaderConfiguration
from result import require

accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
rows = [accel.full([1000], float(number)) for number in range(20)]
loader = accelerator.prepare(DataLoader(rows, batch_size=4, pin_memory=True))
sums = []
for batch in loader:
    require(batch.device == accelerator.device, f"a batch is on {batch.device}")
    sums += batch.sum(1).tolist()
require(sums == [1000.0 * number for number in range(20)], f"the batches have the sums {sums}")
print("batches of page-locked memory reached", accelerator.device)
