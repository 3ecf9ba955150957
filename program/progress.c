#include "program/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"

#define BAR_CELLS 24
#define TEXT_BYTES 160

void progress_begin(struct progress *progress, bool forced)
{
	memset(progress, 0, sizeof(*progress));
	progress->tty = isatty(STDERR_FILENO) == 1;
	progress->on = progress->tty || forced;
	progress->start_ns = clock_now_ns(clock_monotonic());
}

void progress_show(struct progress *progress, double done, const char *fmt, ...)
{
	int64_t pause = progress->tty ? CLOCK_NS_PER_S / 10 : CLOCK_NS_PER_S;
	uint64_t now = clock_now_ns(clock_monotonic());
	char bar[BAR_CELLS + 1], text[TEXT_BYTES];
	va_list args;

	if (!progress->on || (progress->shown_ns && now - progress->shown_ns < (uint64_t)pause))
		return;
	if (progress->tty && now - progress->start_ns < (uint64_t)CLOCK_NS_PER_S / 2)
		return;
	done = done < 0 ? 0 : done > 1 ? 1 : done;
	memset(bar, '.', BAR_CELLS);
	memset(bar, '#', (size_t)(done * BAR_CELLS));
	bar[BAR_CELLS] = 0;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(stderr, "%s[%s] %3.0f %% %5.1f s  %.100s%s", progress->tty ? "\r\033[K" : "", bar,
		done * 100, (double)(now - progress->start_ns) / 1e9, text,
		progress->tty ? "" : "\n");
	fflush(stderr);
	progress->shown_ns = now;
	progress->drawn = progress->tty;
}

void progress_clear(struct progress *progress)
{
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}
