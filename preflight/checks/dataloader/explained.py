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

EXAMPLES = ""
