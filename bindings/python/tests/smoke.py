# SPDX-License-Identifier: Apache-2.0
"""The low layer at work: two ranks as threads, each with a state, a tensor, an operator and a gather; then callbacks, errors
and what is left. That the ranks can wait for each other shows that the interpreter's lock is let go."""

import array
import gc
import json
import pathlib
import sys
import threading

from accel import Error, capi
from accel.state.environment import get_free_port

FLOAT = capi.ACCEL_DTYPE_FLOAT32


def tensor(*numbers):
    return capi.accel_tensor_from_data(array.array("f", numbers), [len(numbers)], FLOAT)


def run_rank(rank, port, results):
    options = capi.accel_state_options_t()
    options.cpu, options.process_index, options.num_processes = 1, rank, 2
    options.local_process_index, options.local_num_processes = rank, 2
    options.main_process_ip, options.main_process_port = "127.0.0.1", port
    options.timeout_ms = 30000
    state = capi.accel_state_create(options)
    numbers = tensor(rank, 10 + rank)
    (doubled,) = capi.accel_op_call(capi.accel_op_find("aten::add", "Tensor"), [numbers, numbers])
    results[rank] = capi.accel_listify(capi.accel_gather(state, {"numbers": doubled}))
    capi.accel_end_training(state)


def two_ranks_gather():
    results, port = {}, get_free_port()
    ranks = [threading.Thread(target=run_rank, args=(rank, port, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert results == {rank: {"numbers": [0.0, 20.0, 2.0, 22.0]} for rank in range(2)}, results


def values_travel():
    nested = {"a": [1, 2.5, None, True, "text"], "b": {"c": tensor(1, 2)}}
    there_and_back = capi.accel_listify(nested)
    assert there_and_back == {"a": [1, 2.5, None, True, "text"], "b": {"c": [1.0, 2.0]}}, there_and_back
    assert json.loads(capi.accel_value_to_json(nested)) == there_and_back
    assert capi.accel_tensor_shape(tensor(1, 2, 3)) == (3,)
    lent = capi.accel_tensor_from_dlpack(capi.accel_tensor_to_dlpack(tensor(3, 4)))
    assert capi.accel_listify(lent) == [3.0, 4.0]
    device = capi.accel_device_parse("cpu")
    assert (device.type, device.index) == (capi.ACCEL_DEVICE_CPU, -1)


def callbacks_run():
    add = capi.accel_op_find("aten::add", "Tensor")
    module = capi.accel_module_create("Doubled")
    capi.accel_module_set_forward(module, lambda _, inputs: capi.accel_op_call(add, [inputs[0], inputs[0]])[0])
    assert capi.accel_listify(capi.accel_module_call(module, [tensor(1, 2)])) == [2.0, 4.0]

    def fails(_, inputs):
        raise KeyError("from the callback")

    capi.accel_module_set_forward(module, fails)
    assert raised(KeyError, capi.accel_module_call, module, [tensor(1)]).args == ("from the callback",)


def raised(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"{function.__name__} raised no {kind.__name__}")


def wrong_calls_raise():
    error = raised(Error, capi.accel_op_find, "aten::no_such_operator", "")
    assert error.status == capi.ACCEL_ERROR_NOT_FOUND and error.code == "ACCEL_ERROR_NOT_FOUND" and error.rank == -1
    assert "tensor is NULL" in raised(Error, capi.accel_tensor_numel, None).args[0]
    raised(TypeError, capi.accel_tensor_numel, capi.accel_module_create("Other"))
    raised(TypeError, capi.accel_listify, object())
    raised(ValueError, capi.accel_tensor_from_data, array.array("f", [1]), [2], FLOAT)
    gone = tensor(1)
    capi.accel_tensor_release(gone)
    assert raised(Error, capi.accel_tensor_numel, gone).status == capi.ACCEL_ERROR_INVALID_HANDLE


def loops_end():
    loader = capi.accel_dataloader_create(capi.accel_dataset_tensors([tensor(1, 2, 3)]), None)
    seen = []
    while True:
        status, batch = capi.accel_dataloader_next(loader)
        if status == capi.ACCEL_ITER_END:
            break
        seen += capi.accel_listify(batch)
    assert seen == [[1.0], [2.0], [3.0]], seen


def datasets_of_the_program():
    squares = capi.accel_dataset_create((lambda: 4, lambda index: index * index))
    assert capi.accel_dataset_length(squares) == 4 and capi.accel_dataset_item(squares, 3) == 9
    together = capi.accel_dataset_create((lambda: 3, lambda index: index, lambda indices: [10 * index for index in indices]))
    _, batch = capi.accel_dataloader_next(capi.accel_dataloader_create(together, None))
    assert capi.accel_listify(batch) == [0]

    def no_length():
        raise KeyError("no shelf")
    assert raised(KeyError, capi.accel_dataset_item, capi.accel_dataset_create((no_length, lambda index: index)), 0)
    assert raised(TypeError, capi.accel_dataset_create, (lambda: 4,))
    assert raised(TypeError, capi.accel_dataset_create, (lambda: 4, None))
    stream = capi.accel_dataset_create_stream((lambda epoch, shard, readers: epoch, lambda reader: next(iter(()))), 5, 1)
    assert capi.accel_dataset_length(stream) == 5
    assert capi.accel_dataset_length(capi.accel_dataset_merge([stream, squares], [1, 2.5], 0, capi.ACCEL_MERGE_END_ALL)) == 9


def every_function_is_there(coverage):
    rows = [line.split("|") for line in coverage.read_text().splitlines() if line.startswith("| `accel_")]
    for _, name, _, python, *_ in rows:
        there = hasattr(capi, name.strip(" `"))
        assert there == (not python.strip().startswith("skipped")), f"{name}: {python}"


def references_are_returned():
    for _ in range(1000):
        tensor(1)
        capi.accel_module_create("Short")
    gc.collect()
    assert capi.accel_debug_live_objects() == 0, capi.accel_debug_live_objects()


def main():
    two_ranks_gather()
    values_travel()
    callbacks_run()
    datasets_of_the_program()
    wrong_calls_raise()
    loops_end()
    every_function_is_there(pathlib.Path(sys.argv[1]))
    references_are_returned()


main()
