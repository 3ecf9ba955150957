/*
 * mempool_file.c - pools in a file or on a DAX device (wire/pool_layout.h).
 *
 * Two locks on the file. The owner's (byte 0, of the open file description): one target at a time.
 * flock: shared by each client that maps the file, over a file description of its own, so that the
 * kernel knows when the last of them is gone; until then extents given back stay in quarantine.
 */
#include "transport/pool/mempool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/bits.h"

#include "transport/pool/durable.h"
#include "transport/pool/extents.h"
#include "transport/pool/map.h"
#include "transport/pool/pool_super.h"

struct filepool {
	struct mempool pool;
	int fd;
	bool made; /* by us, just now */
	bool is_device;
	struct durable map;
	int failed;                /* 0, or why the table could not be written */
	struct extent_table table; /* both copies on disk, and changes in progress */
};

static struct filepool *filepool_of(struct mempool *pool)
{
	return (struct filepool *)pool;
}

static struct extent_table *copy_at(const struct filepool *file, int copy)
{
	return (struct extent_table *)(void *)(file->map.base +
					       (copy ? POOL_TABLE_OFF1 : POOL_TABLE_OFF0));
}

static size_t table_bytes(const struct extent_table *table)
{
	return offsetof(struct extent_table, entries) + table->n * sizeof(struct extent_entry);
}

static int write_copy(const struct filepool *file, int copy)
{
	size_t bytes = table_bytes(&file->table);

	memcpy(copy_at(file, copy), &file->table, bytes);
	return durable_persist(&file->map, copy ? POOL_TABLE_OFF1 : POOL_TABLE_OFF0, bytes);
}

/*
 * Commits the changed table: writes copy 0, makes it durable, then copy 1. After a crash at any
 * point one copy is valid, and a committed change is in both. After a failure the file's table is
 * unknown: all later changes fail until the pool is reopened.
 */
static int file_commit(struct filepool *file)
{
	int ret = file->failed;

	if (ret)
		return error_set(ret, "extent table: it could not be written before, the pool is "
				      "to be opened again");
	file->table.seq++;
	extents_seal(&file->table);
	for (int copy = 0; ret == 0 && copy < 2; copy++)
		ret = write_copy(file, copy);
	file->failed = ret;
	return ret ? error_prefix(ret, "extent table: ") : 0;
}

/* -------- superblock -------- */

/*
 * Writes the superblock to one copy, durably: by pwrite where it can, which is whole or not done
 * when we are killed, while a memcpy into the mapping may be cut.
 */
static int put_super(struct filepool *file, int copy)
{
	const struct pool_superblock *sb = &file->pool.super;
	uint64_t off = copy ? POOL_SUPERBLOCK_OFF1 : 0;

	if (file->is_device || pwrite(file->fd, sb, sizeof(*sb), (off_t)off) != sizeof(*sb))
		memcpy(file->map.base + off, sb, sizeof(*sb));
	return durable_persist(&file->map, off, sizeof(*sb));
}

/*
 * ops->put_super: writes copy 1, then copy 0, so that one copy is whole at any moment, and copy 1
 * is never the older one.
 */
static int file_put_super(struct mempool *pool)
{
	int ret = put_super(filepool_of(pool), 1);

	if (ret == 0)
		ret = put_super(filepool_of(pool), 0);
	return ret ? error_prefix(ret, "pool superblock: ") : 0;
}

/* -------- regions -------- */

static int end_quarantine(struct filepool *file)
{
	bool changed = false;

	for (uint32_t i = 0; i < file->table.n; i++) {
		struct extent_entry *entry = &file->table.entries[i];

		/* regions that this process has attached stay */
		if (entry->state != EXTENT_QUARANTINE || file->pool.regions[entry->region])
			continue;
		file->pool.used -= entry->extents * POOL_EXTENT_BYTES;
		*entry = (struct extent_entry){ 0 };
		changed = true;
	}
	return changed ? file_commit(file) : 0;
}

static void file_reclaim(struct mempool *pool)
{
	struct filepool *file = filepool_of(pool);

	if (map_is_sole(file->fd))
		(void)!end_quarantine(file);
}

/*
 * ops->reserve: finds free extents and sets region->fd_off. One region is made at a time, so they
 * stay free until file_alloc. -ENOSPC: no free run is long enough.
 */
static int file_reserve(struct mempool *pool, struct mempool_region *region)
{
	struct filepool *file = filepool_of(pool);
	uint64_t count = region->info.size / POOL_EXTENT_BYTES, longest = 0;
	uint64_t first = extents_find_run(&file->table, count, &longest);

	if (first == 0) {
		mempool_reclaim(pool);
		first = extents_find_run(&file->table, count, &longest);
	}
	if (first == 0)
		return error_set(
			-ENOSPC,
			"pool is full: a region of %llu bytes does not fit, the longest free "
			"run has %llu of %llu",
			(unsigned long long)region->info.size,
			(unsigned long long)(longest * POOL_EXTENT_BYTES),
			(unsigned long long)pool->bytes);
	region->fd_off = first * POOL_EXTENT_BYTES;
	return 0;
}

/*
 * ops->clear: zeroes the region's extents, by a hole where possible; its blocks are taken again, so
 * that no store ever finds the disk full.
 */
static int file_clear(struct mempool *pool, struct mempool_region *region)
{
	const struct filepool *file = filepool_of(pool);
	int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	uint64_t off = region->fd_off, bytes = region->info.size;

	if (!file->is_device && fallocate(file->fd, mode, (off_t)off, (off_t)bytes) == 0)
		return map_take_blocks(file->fd, off, bytes);
	memset(file->map.base + off, 0, bytes);
	return durable_persist(&file->map, off, bytes);
}

static void file_place(const struct filepool *file, struct mempool_region *region,
		       struct extent_entry *entry)
{
	region->fd = file->fd;
	region->fd_off = entry->first * POOL_EXTENT_BYTES;
	region->entry = entry;
	region->map = file->map;
	region->map.base += region->fd_off;
	region->map.size = region->info.size;
	region->info.base = region->map.base;
}

static int file_alloc(struct mempool *pool, struct mempool_region *region)
{
	struct filepool *file = filepool_of(pool);
	struct extent_entry *entry = extents_take_entry(&file->table);
	int ret;

	if (!entry)
		return error_set(-ENOSPC, "pool is full: its table has %u entries",
				 POOL_TABLE_ENTRIES);
	*entry = (struct extent_entry){
		.region = region->info.id,
		.kind = (uint16_t)region->info.kind,
		.role = (uint16_t)region->info.role,
		.object = region->info.object,
		.part = region->info.part,
		.first = region->fd_off / POOL_EXTENT_BYTES,
		.extents = (uint32_t)(region->info.size / POOL_EXTENT_BYTES),
		.state = EXTENT_LIVE,
	};
	file->table.last_region = region->info.id;
	ret = file_commit(file);
	if (ret)
		*entry = (struct extent_entry){ 0 };
	else
		file_place(file, region, entry);
	return ret;
}

static int file_drop(struct mempool *pool, struct mempool_region *region)
{
	region->entry->state = EXTENT_QUARANTINE;
	return file_commit(filepool_of(pool));
}

/*
 * ops->release: frees the extents of a dropped region, which this process has not attached any
 * more, if no other process maps the file.
 */
static void file_release(struct mempool *pool, struct mempool_region *region, bool forked)
{
	struct filepool *file = filepool_of(pool);

	if (forked || !region->dropped || !map_is_sole(file->fd))
		return;
	*region->entry = (struct extent_entry){ 0 };
	/* if this fails it stays in quarantine until the next open */
	(void)!file_commit(file);
}

/*
 * ops->close: unmaps the file, gives up its lock and closes it (forked: only closes). Descriptors
 * inherited by children share the lock, so closing alone would not give it up.
 */
static void file_close(struct mempool *pool, bool forked)
{
	struct filepool *file = filepool_of(pool);

	if (!forked && file->map.base)
		durable_unmap(&file->map);
	if (!forked && file->fd >= 0)
		(void)map_own(file->fd, false);
	map_close(file->fd);
}

static const struct mempool_ops file_ops = {
	.reserve = file_reserve,
	.clear = file_clear,
	.alloc = file_alloc,
	.reclaim = file_reclaim,
	.drop = file_drop,
	.put_super = file_put_super,
	.release = file_release,
	.close = file_close,
};

/* -------- making the file -------- */

/*
 * Grows the file to opts->pool_bytes and extent 0, if it is smaller; *size_out: its size then. All
 * blocks are taken now: a store into a hole on a full disk would be a SIGBUS. -EINVAL: a new file,
 * and no pool_bytes.
 */
static int make_size(const struct filepool *file, const struct target_opts *opts, uint64_t have,
		     uint64_t *size_out)
{
	uint64_t want = opts->pool_bytes ? opts->pool_bytes + POOL_EXTENT_BYTES : 0;
	int ret;

	if (have == 0 && want == 0)
		return error_set(-EINVAL, "pool %s is new: give pool_bytes", opts->path);
	*size_out = max_u64(want, have);
	if (want <= have)
		return 0;
	ret = map_take_blocks(file->fd, 0, want);
	if (ret == 0)
		return 0;
	(void)!ftruncate(file->fd, (off_t)have);
	return error_prefix(ret, "pool %s: ", opts->path);
}

static bool is_dax(const struct stat *st)
{
	char path[64], target[256];
	const char *name;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major(st->st_rdev),
		       minor(st->st_rdev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	name = strrchr(target, '/');
	return name && strcmp(name, "/dax") == 0;
}

/*
 * Opens the file or DAX device, or makes the file if opts->create, and takes its owner's lock.
 * *have_out: its size.
 */
static int open_locked(struct filepool *file, const struct target_opts *opts, uint64_t *have_out)
{
	struct stat st;

	file->fd = open(opts->path, O_RDWR | O_CLOEXEC);
	if (file->fd < 0 && errno == ENOENT && opts->create) {
		file->fd = open(opts->path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
		file->made = file->fd >= 0;
		if (file->fd < 0 && errno == EEXIST) /* somebody else was faster */
			file->fd = open(opts->path, O_RDWR | O_CLOEXEC);
	}
	if (file->fd < 0)
		return error_set(-errno, "open pool %s: %s", opts->path, strerror(errno));
	if (fstat(file->fd, &st))
		return error_set(-errno, "stat pool %s: %s", opts->path, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
		return error_set(-EINVAL, "pool %s: neither a file nor a device", opts->path);
	file->is_device = S_ISCHR(st.st_mode);
	if (file->is_device && !is_dax(&st))
		return error_set(-ENODEV, "pool %s: a character device, but no DAX device",
				 opts->path);
	if (file->is_device && !durable_has_library())
		return error_set(-ENOTSUP, "pool %s: devices need libpmem", opts->path);
	*have_out = (uint64_t)st.st_size;
	return map_own(file->fd, true);
}

/* -------- its content -------- */

static int refuse_short(uint64_t bytes)
{
	return error_set(-EPROTO, "not a pool: it has only %llu bytes", (unsigned long long)bytes);
}

/*
 * Loads the superblock and the extent table of an existing pool, and rewrites a copy of either that
 * is not the same as the current one. Refuses a truncated file: grown again, its regions would read
 * as zeros. *blank_out: nothing was made there yet, and create is set. What is no pool is not
 * changed.
 */
static int load_content(struct filepool *file, bool create, uint64_t have, bool *blank_out)
{
	const struct extent_table *tables[2];
	struct pool_superblock pair[2];
	int newer, ret = 0;

	if (file->is_device && have >= 2 * POOL_EXTENT_BYTES) {
		memcpy(&pair[0], file->map.base, sizeof(pair[0]));
		memcpy(&pair[1], file->map.base + POOL_SUPERBLOCK_OFF1, sizeof(pair[1]));
	} else {
		ret = pool_super_read(file->fd, POOL_SUPERBLOCK_OFF1, pair);
	}
	*blank_out = create && ret == 0 && bits_all_zero(pair, sizeof(pair));
	if (ret || *blank_out)
		return ret;
	if (have < 2 * POOL_EXTENT_BYTES)
		return refuse_short(have);
	newer = pool_super_choose(pair, POOL_EXTENTS);
	if (newer < 0)
		return newer;
	file->pool.super = pair[newer];
	if (!file->is_device)
		ret = durable_map(file->fd, have, &file->map);
	if (ret)
		return ret;
	tables[0] = copy_at(file, 0);
	tables[1] = copy_at(file, 1);
	ret = extents_choose(tables, have / POOL_EXTENT_BYTES);
	if (ret < 0)
		return ret;
	memcpy(&file->table, tables[ret], sizeof(file->table));
	/* The other copy lacks the last commit, or is torn or damaged. */
	if (memcmp(tables[!ret], &file->table, table_bytes(&file->table)) != 0 &&
	    (ret = write_copy(file, !ret)) != 0)
		return error_prefix(ret, "extent table: ");
	return pool_super_same(pair) ? 0 : put_super(file, !newer);
}

/*
 * Adds the extents by which the file has grown to the table, and makes the pool's entry of each
 * live region of the table.
 */
static int enter_regions(struct filepool *file)
{
	uint64_t extents = file->map.size / POOL_EXTENT_BYTES;
	int ret = 0;

	if (file->table.extents < extents) {
		file->table.extents = extents;
		ret = file_commit(file);
	}
	file->pool.used = extents_used(&file->table) * POOL_EXTENT_BYTES;
	if (ret == 0 && file->pool.sole_opener)
		ret = end_quarantine(file);
	for (uint32_t i = 0; ret == 0 && i < file->table.n; i++) {
		struct extent_entry *entry = &file->table.entries[i];
		const struct target_region info = {
			.id = entry->region,
			.kind = entry->kind,
			.role = entry->role,
			.object = entry->object,
			.part = entry->part,
			.size = entry->extents * POOL_EXTENT_BYTES,
			.sole = file->pool.sole_opener,
		};
		struct mempool_region *region;

		if (entry->state != EXTENT_LIVE)
			continue;
		region = mempool_region_new(&info);
		if (!region)
			return -ENOMEM;
		file_place(file, region, entry);
		file->pool.regions[info.id] = region;
		file->pool.n_regions++;
	}
	file->pool.bytes = (file->table.extents - 1) * POOL_EXTENT_BYTES;
	file->pool.last_id = file->table.last_region;
	return ret;
}

int mempool_open_file(const struct target_opts *opts, struct mempool **pool_out)
{
	struct filepool *file;
	uint64_t have = 0, size = 0;
	bool blank = false;
	int ret = mempool_new(sizeof(*file), &file_ops, opts, pool_out);

	if (ret)
		return ret;
	file = filepool_of(*pool_out);
	file->fd = -1;
	ret = open_locked(file, opts, &have);
	file->pool.sole_opener = ret == 0 && map_is_sole(file->fd);
	if (ret == 0 && opts->exclusive && !file->pool.sole_opener)
		ret = error_set(-EBUSY, "in use by another process");
	if (ret == 0 && file->is_device) {
		ret = durable_map(file->fd, 0, &file->map);
		have = file->map.size;
	}
	if (ret == 0 && have)
		ret = load_content(file, opts->create, have, &blank);
	if (ret == 0 && !file->is_device)
		ret = make_size(file, opts, have, &size);
	if (ret == 0 && max_u64(have, size) < 2 * POOL_EXTENT_BYTES)
		ret = refuse_short(max_u64(have, size));
	if (ret == 0 && size > file->map.size) {
		durable_unmap(&file->map);
		ret = durable_map(file->fd, size, &file->map);
	}
	/* The superblock is last: a crash before it leaves a blank file, which is formatted again. */
	if (ret == 0 && (blank || have == 0)) {
		extents_make_table(&file->table, file->map.size / POOL_EXTENT_BYTES);
		ret = pool_super_make(&file->pool.super, POOL_EXTENTS);
		ret = ret ? ret : file_commit(file);
		ret = ret ? ret : file_put_super(*pool_out);
	}
	if (ret == 0)
		ret = enter_regions(file);
	/* A file that we made goes, if it still has its name. */
	if (ret && file->made && map_is_named(file->fd, AT_FDCWD, opts->path))
		(void)unlink(opts->path);
	file->pool.undivided = file->is_device && !opts->trust_clients;
	file->pool.page_kind = file->map.is_pmem || file->is_device ? "dax" : "file";
	return ret;
}
