/* Kernel for any CPU; see ds/weights/kernel.h. */
#include "ds/weights/kernel.h"

static uint64_t word_at(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

/* A bit for each byte of a word that is not 0. */
static uint64_t bytes_not_zero(uint64_t word)
{
	word |= word >> 4;
	word |= word >> 2;
	word |= word >> 1;
	word &= UINT64_C(0x0101010101010101);
	return word * UINT64_C(0x0102040810204080) >> 56;
}

static uint64_t compare(const uint8_t *old, const uint8_t *now, uint64_t differ[DELTA_LINES])
{
	uint64_t lines = 0;

	for (uint32_t i = 0; i < DELTA_LINES; i++, old += CACHE_LINE, now += CACHE_LINE) {
		differ[i] = 0;
		if (memcmp(old, now, CACHE_LINE) == 0)
			continue;
		for (uint32_t j = 0; j < CACHE_LINE; j += 8)
			differ[i] |= bytes_not_zero(word_at(old + j) ^ word_at(now + j)) << j;
		lines |= UINT64_C(1) << i;
	}
	return lines;
}

static uint64_t sum_words(const uint8_t *at, uint32_t first, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++, at += 4) {
		uint32_t word;

		memcpy(&word, at, sizeof(word));
		sum += word * delta_keys[first + i];
	}
	return sum;
}

static uint64_t copy(uint8_t *to, const uint8_t *from, uint64_t lines)
{
	uint64_t sum = 0;

	for (; lines; lines &= lines - 1) {
		uint32_t line = bits_ctz(lines), first = line * DELTA_LINE_WORDS;

		sum -= sum_words(to + line * CACHE_LINE, first, DELTA_LINE_WORDS);
		memcpy(to + line * CACHE_LINE, from + line * CACHE_LINE, CACHE_LINE);
		sum += sum_words(to + line * CACHE_LINE, first, DELTA_LINE_WORDS);
	}
	return sum;
}

static uint64_t sum(const uint8_t *run)
{
	return sum_words(run, 0, DELTA_RUN_WORDS);
}

const struct delta_kernel delta_kernel_plain = { compare, copy, sum };
