"""Jobs for three worker processes. If one is killed, another one gets its job at once.

python examples/queue_workers.py FOLDER
"""

from __future__ import annotations

import os
import sys
from multiprocessing import Process

from lycosa.queue import Queue, ShutDown


def work(queue: Queue) -> None:
    while True:
        try:
            with queue.lease() as job:
                print(f"{os.getpid()}: {job['name']}\n", end="", flush=True)  # one write: lines of workers do not mix
        except ShutDown:
            return


def main(folder: str) -> None:
    with Queue(folder, maxsize=100) as queue:
        workers = [Process(target=work, args=(queue,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for number in range(20):
            queue.put({"name": f"job {number}"})
        queue.join()
        queue.shutdown()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
