#include "client/save/zstd.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

/* The simple calls of zstd.h, stable since zstd 1.0. */
static struct {
	size_t (*bound)(size_t bytes);
	size_t (*compress)(void *dst, size_t room, const void *src, size_t bytes, int level);
	size_t (*decompress)(void *dst, size_t room, const void *src, size_t stored);
	unsigned int (*is_error)(size_t code);
	bool found;
} zstd;

static void zstd_find(void)
{
	void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return;
	*(void **)&zstd.bound = dlsym(library, "ZSTD_compressBound");
	*(void **)&zstd.compress = dlsym(library, "ZSTD_compress");
	*(void **)&zstd.decompress = dlsym(library, "ZSTD_decompress");
	*(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
	zstd.found = zstd.bound && zstd.compress && zstd.decompress && zstd.is_error;
}

int zstd_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, zstd_find);
	return zstd.found ? 0
			  : error_set(-ENOTSUP, "zstd: libzstd.so.1 cannot be opened: install it "
						"(Debian: apt install libzstd1), or save without "
						"compression");
}

size_t zstd_bound(size_t bytes)
{
	return zstd.bound(bytes);
}

int zstd_pack(int level, const void *src, size_t bytes, void *dst, size_t *room_inout)
{
	size_t n = zstd.compress(dst, *room_inout, src, bytes, level);

	if (zstd.is_error(n))
		return error_set(-ENOMEM, "zstd: cannot compress %zu bytes", bytes);
	*room_inout = n;
	return 0;
}

int zstd_unpack(void *dst, size_t bytes, const void *src, size_t stored)
{
	size_t n = zstd.decompress(dst, bytes, src, stored);

	if (zstd.is_error(n) || n != bytes)
		return error_set(-EBADMSG, "zstd: %zu bytes are not %zu compressed ones", stored,
				 bytes);
	return 0;
}
