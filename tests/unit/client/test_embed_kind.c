/*
 * A kind of objects that the client knows nothing of, on the catalog of an embedded store: it takes
 * what a kind has to bring (catalog/kind.h), and no further file.
 */
#include "tests/support/must_internal.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"
#include "tests/support/toy_kind/toy_kind.h"

#include "client/meta/embed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PARTS 3u

static struct embed *open_store(const char *path)
{
	const struct rlv_store_opts opts = { .size = sizeof(opts), .pool_bytes = 256 << 20 };
	struct meta *meta;

	object_kind_register(&kind_toy);
	must(meta_embed_open(path, &opts, &meta));
	return (struct embed *)meta;
}

static struct catalog_object *make_toy(struct embed *embed, const char *name)
{
	struct catalog_object *toy;
	int ret;

	do
		ret = toy_create(&embed->cat, name, PARTS, &toy);
	while (ret == -EAGAIN);
	assert_int_equal(ret, 0);
	return toy;
}

/* Each part counts, by a client with a slot. */
static void count(struct embed *embed, struct catalog_object *toy, uint64_t n)
{
	uint32_t owner;

	must(slots_get(&toy->slots, &embed->self, 1, &owner));
	for (uint32_t s = 0; s < PARTS; s++) {
		must(toy_begin(toy->attached[s], owner, n));
		must(toy_end(toy->attached[s], owner));
	}
	must(slots_put(&toy->slots, EMBED_CLIENT, owner));
}

static void expect_count(const struct catalog_object *toy, uint64_t n)
{
	for (uint32_t s = 0; s < PARTS; s++) {
		uint64_t found;

		must(toy_count(toy->attached[s], &found));
		assert_int_equal(found, n);
	}
}

static uint64_t used_bytes(const struct embed *embed)
{
	struct target_stats stats;

	embed->base.target->ops->stats(embed->base.target, &stats);
	return stats.used_bytes;
}

TEST(toy__is_created_counted_and_dropped)
{
	struct embed *embed = open_store(NULL);
	uint64_t before = used_bytes(embed);
	struct catalog_object *toy = make_toy(embed, "t");
	const struct meta_object table = { .kind = OBJECT_TABLE, .name = "t" };
	struct meta_opened opened;
	size_t n = 0;

	count(embed, toy, 7);
	expect_count(toy, 7);
	assert_ptr_equal(make_toy(embed, "t"), toy);
	/* To requests that name tables it is none. */
	assert_int_equal(embed->base.ops->open(&embed->base, &table, META_LOOKS, 0, &opened),
			 -ENOENT);
	must(embed->base.ops->list(&embed->base, OBJECT_TABLE, NULL, &n));
	assert_int_equal(n, 0);
	must(embed_drop_object(embed, toy));
	assert_null(catalog_find(&embed->cat, "t"));
	assert_int_equal(used_bytes(embed), before);
	embed->base.ops->close(&embed->base);
}

TEST(toy__in_a_file_is_there_again)
{
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8];
	struct embed *embed;
	struct catalog_object *toy;
	uint32_t owner;

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/pool", dir);
	embed = open_store(path);
	toy = make_toy(embed, "t");
	count(embed, toy, 7);
	/* Its client is gone without a word: the slot is free again, what was open is withdrawn. */
	must(slots_get(&toy->slots, &embed->self, 1, &owner));
	must(toy_begin(toy->attached[0], owner, 5));
	embed->base.ops->close(&embed->base);
	embed = open_store(path);
	toy = catalog_find(&embed->cat, "t");
	assert_non_null(toy);
	expect_count(toy, 7);
	for (uint32_t i = 0; i < TOY_CLIENTS; i++)
		must(slots_get(&toy->slots, &embed->self, 1, &owner));
	must(toy_end(toy->attached[0], 1));
	expect_count(toy, 7);
	must(embed_drop_object(embed, toy));
	embed->base.ops->close(&embed->base);
	(void)unlink(path);
	(void)rmdir(dir);
}

int main(void)
{
	return test_run(NULL, NULL);
}
