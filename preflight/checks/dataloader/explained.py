"""The causes as `preflight explain dataloader` tells them: what is seen, what helps. Pure."""

from __future__ import annotations

CAUSES = {
    "slow_rank": "one rank falls far behind others that reach what is needed: compare what "
    "differs for it (its part of the data, its CPUs, its NUMA node)",
    "cpu_weight": "others took the CPUs, and this container gives way to them: a CPU request, "
    "docker's --cpu-shares, a cpuset",
    "neighbours": "others took so much of the CPUs that no verdict was possible: a quiet node, or "
    "CPUs of one's own",
    "cpu_quota": "all of a CFS quota was used: a higher limit on CPUs, by the number in the remedy",
    "steal": "the hypervisor gave the CPUs to other guests: another host",
    "too_many_workers": "fewer workers were faster: the number that was",
    "tiny_samples": "samples are as many as queues between processes can hand over: whole batches "
    "(__getitems__, batch_size=None)",
    "transport": "the time goes into collate or into sending batches: fewer bytes (uint8 in place "
    "of float32, crops), tensors in place of lists of objects",
    "helper_threads": "threads that the data set starts take the CPU time: OMP_NUM_THREADS=1, "
    "cv2.setNumThreads(0)",
    "cpus": "no CPU is idle, or no worker ever waits: more CPUs, or cheaper work where a line is "
    "named",
    "few_workers": "each worker is busy and CPUs are idle: more workers",
    "pin_memory": "the workers wait, and one thread copies every batch into pinned memory: fewer "
    "bytes, or loader.pin_memory=false",
    "main_process": "the workers wait for the process that takes the batches: larger batches, a "
    "quicker sampler, in_order=false where single samples are slow",
    "lock": "the workers wait for a lock that one holds at a time: a handle or client for each "
    "worker",
    "storage_unaccounted": "they wait for reads that no disk of this node served (NFS, FUSE): a "
    "local copy, or the file server; more workers where these hide the wait",
    "storage": "they wait for reads from a disk of this node: lift what limits it, a faster disk, "
    "data read into memory first",
    "remote_latency": "they wait for a server, and more workers hide it: that many workers",
    "remote_saturated": "they wait for a server, and more workers do not help: the server, the "
    "network to it",
    "remote": "they wait for a server, and nobody could try more workers: try",
    "latency": "they sleep or wait for something else that more workers hide: that many workers",
    "unknown": "the evidence is thin: it is shown as it was seen",
}
"""Every `cause_id`, in the order of the table: what is seen, and the usual remedy."""

EXAMPLES = """\
a quota of one CPU (with the remedy followed: 471 of 413 samples/s, PASS)

    FAIL node vm: dataloader: 233 samples/s of 372 needed; give the container at least 2 CPUs

    feed   233 +- 37 samples/s of 413 needed (56 %): the GPU would wait 44 % of the time
           decode        311 /s   <- limits: 4.23 ms of CPU a sample, 3.81 of them decode
           transport   3,057 /s   (0.3 ms of CPU a sample)
    limit  372 samples/s, 90 % of what is needed
    what if no other setting is clearly faster: 1 worker: 207 samples/s (now 2 workers: 235)
           what is needed takes at least 2 CPUs
    why    the loader workers used all of the 1-CPU quota
    fix    give the container at least 2 CPUs (it has a quota of 1 on a 2-CPU node; 413 / 233.4 x 1 =
           1.8)

storage that reads 1.65 MB/s, a tenth of what is needed (with the remedy followed: 404 of 150 samples/s, PASS)

    FAIL node vm: dataloader: 14.5 samples/s of 135 needed; read the data into memory before the job,
    which gives 301/s

    feed   14.5 samples/s of 150 needed (10 %): the GPU would wait 90 % of the time
           decode        646 /s   (3.1 ms of CPU a sample)
           transport   5,604 /s   (0.311 ms of CPU a sample)
           none of these limits: one after the other they give 579 /s
           6.64 ms of CPU a sample: fetch and decode 4.86, collate 0.02, main process 1.76
    limit  135 samples/s, 90 % of what is needed
    what if no other setting is clearly faster: 4 workers: 15.5, 3 workers: 15.8 samples/s (now 2
           workers: 15)
           all data in memory: 301 samples/s, by its CPU time
           what is needed takes at least 2 CPUs
    why    the workers waited 93% of their time for reads, 110 kB of each sample off a disk; 3 workers
           gave 16/s
    fix    read the data into memory before the job, which gives 301/s; or lift what limits its reads
           (io.max, docker's --device-read-bps, the IOPS of a volume), keep the data on a faster disk,
           or store smaller samples

a /dev/shm of 64 MiB (with the remedy followed: 587 of 50 samples/s, PASS)

    FAIL node vm: shm: 0.0625 GiB of 0.1346 needed; give /dev/shm at least 1 GiB

    why         /dev/shm has 0.0625 GiB free of 0.0625; the batches in flight take 0.1346. 64 MiB is the
                container engine's default: nobody set a size
    fix         give /dev/shm at least 1 GiB: docker run --shm-size=1g; Compose: shm_size: 1gb;
                Kubernetes: an emptyDir with medium: Memory and sizeLimit: 1Gi mounted at /dev/shm; or
                use fewer workers, a smaller batch or a smaller prefetch_factor
"""  # noqa: E501
"""One folder of JPEGs, three conditions: `.venv/bin/python -m tests.cases --show`, as root."""
