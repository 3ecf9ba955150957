/*
 * probe.cu - kernels of the probe; probe_ptx.h is made of it by tools/ptx.
 */
static __device__ unsigned long long now_ns()
{
	unsigned long long ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

extern "C" __global__ void probe_spin(unsigned long long ns)
{
	unsigned long long end = now_ns() + ns;

	while (now_ns() < end)
		;
}

/* Reads and writes memory for ns; out[0] is the longest step in cycles, out[1] the number of steps. */
extern "C" __global__ void probe_gap(unsigned long long ns, unsigned long long *out,
				     volatile unsigned *memory)
{
	unsigned long long end = now_ns() + ns, longest = 0, steps = 0;
	long long before = clock64();

	while (now_ns() < end) {
		long long now = clock64();

		if ((unsigned long long)(now - before) > longest)
			longest = (unsigned long long)(now - before);
		before = now;
		memory[steps % 4096] = memory[(steps * 17) % 4096] + 1;
		steps++;
	}
	out[0] = longest;
	out[1] = steps;
}
