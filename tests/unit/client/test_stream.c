/* Blocks of a stream: repeated head rows, the state kept of a lost block, and the seals of rows. */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"

#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

#define HEAD 4u /* rows that a block repeats: windows are of 5 */

struct rig {
	struct nodes_fixture nx;
	struct rlv_writer *writer;
	struct stream *st;
};

static struct rig *open_rig(enum nodes_reach reach)
{
	static const struct rlv_view view = { .n_step = 3, .stack = 2 };
	const struct nodes_opts opts = {
		.nodes = 2,
		.reach = reach,
		.table = { .views = &view, .n_views = 1, .block = 32, .capacity = 3000 },
	};
	static struct rig rig;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	assert_int_equal(rig.nx.desc.window_max, HEAD + 1);
	rig.writer = replay_writer(&rig.nx.fx, 1);
	rig.st = &rig.writer->streams[0];
	return &rig;
}

static void close_rig(struct rig *rig)
{
	replay_writer_done(&rig->writer);
	nodes_close(&rig->nx);
}

/* A row of the stream's block as its shard has it. */
static void read_row(struct rig *rig, uint32_t i, uint8_t *row)
{
	const struct block *blk = &rig->st->blk;
	struct shard *shard = rig->nx.shards[blk->acc->shard->desc.shard];
	struct transport_io io = { .region = shard->rows,
				   .off = shard_row_off(shard, blk->first + i),
				   .dst = row,
				   .len = rig->nx.desc.row_bytes };

	assert_int_equal(handle_flush(&rig->writer->h), 0);
	assert_int_equal(transport_read(shard->rows->tr, &io, 1), 0);
}

static struct row_tail tail_of(const struct rig *rig, const uint8_t *row)
{
	struct row_tail tail;

	memcpy(&tail, row + rig->nx.desc.tail_off, sizeof(tail));
	return tail;
}

TEST(writer_room__first_block_begins_with_filler_rows)
{
	for (uint32_t reach = NODES_IN_PLACE; reach <= NODES_WIRE; reach++) {
		struct rig *rig = open_rig(reach);
		_Alignas(8) uint8_t row[4096];

		assert_int_equal(handle_begin(&rig->writer->h, 0), 0);
		assert_false(stream_has_room(rig->writer, rig->st));
		assert_int_equal(writer_room(rig->writer, rig->st), 0);
		assert_true(stream_has_room(rig->writer, rig->st));
		assert_int_equal(rig->st->blk.used, HEAD);
		for (uint32_t i = 0; i < HEAD; i++) {
			read_row(rig, i, row);
			assert_int_equal(tail_of(rig, row).flags, ROW_FILLER | ROW_REPEATED);
			assert_int_equal(tail_of(rig, row).gen, rig->st->blk.gen);
		}
		assert_int_equal(replay_writer_stats(rig->writer).repeated_rows, 0);
		close_rig(rig);
	}
}

TEST(writer_room__next_block_repeats_the_last_rows)
{
	for (uint32_t reach = NODES_IN_PLACE; reach <= NODES_WIRE; reach++) {
		struct rig *rig = open_rig(reach);
		_Alignas(8) uint8_t last[HEAD][4096], row[4096];

		replay_append_plain(&rig->nx.fx, rig->writer, 0, 32 - HEAD); /* it is full */
		assert_false(stream_has_room(rig->writer, rig->st));
		for (uint32_t i = 0; i < HEAD; i++)
			read_row(rig, 32 - HEAD + i, last[i]);
		assert_int_equal(handle_begin(&rig->writer->h, 0), 0);
		assert_int_equal(writer_room(rig->writer, rig->st), 0);
		for (uint32_t i = 0; i < HEAD; i++) {
			read_row(rig, i, row);
			assert_memory_equal(row, last[i], rig->nx.desc.tail_off);
			assert_true(tail_of(rig, row).flags & ROW_REPEATED);
			assert_int_equal(tail_of(rig, row).step, tail_of(rig, last[i]).step);
			assert_int_equal(tail_of(rig, row).gen, rig->st->blk.gen);
		}
		assert_int_equal(replay_writer_stats(rig->writer).repeated_rows, HEAD);
		close_rig(rig);
	}
}

/* -------- state of a lost block -------- */

static void fill_stage(struct rig *rig, uint8_t value, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		memset(rig->writer->stage.ptr + (size_t)i * rig->nx.desc.row_bytes, value + (int)i,
		       rig->nx.desc.row_bytes);
}

static void expect_head(const struct rig *rig, const char *values)
{
	for (uint32_t i = 0; i < HEAD; i++)
		assert_int_equal(rig->st->head[(size_t)i * rig->nx.desc.row_bytes], values[i]);
}

TEST(writer_keep_head__few_rows_push_the_oldest_out)
{
	struct rig *rig = open_rig(NODES_WIRE);

	rig->st->staged = 0;
	fill_stage(rig, 'a', 9);
	writer_keep_head(rig->writer, rig->st, 9);
	expect_head(rig, "fghi");
	fill_stage(rig, 'q', 1);
	writer_keep_head(rig->writer, rig->st, 1);
	expect_head(rig, "ghiq");
	fill_stage(rig, 'w', 3);
	writer_keep_head(rig->writer, rig->st, 3);
	expect_head(rig, "qwxy");
	writer_keep_head(rig->writer, rig->st, 0);
	expect_head(rig, "qwxy");
	close_rig(rig);
}

TEST(writer_drop_blocks__of_a_lost_shard_keeps_the_last_rows)
{
	for (uint32_t reach = NODES_IN_PLACE; reach <= NODES_WIRE; reach++) {
		struct rig *rig = open_rig(reach);
		const struct access *acc;
		struct block blk;
		_Alignas(8) uint8_t row[4096];
		uint32_t bytes = rig->nx.desc.row_bytes, used;

		replay_append_plain(&rig->nx.fx, rig->writer, 0, 10);
		acc = rig->st->blk.acc;
		blk = rig->st->blk;
		used = rig->st->blk.used;
		writer_drop_blocks(rig->writer, NULL); /* nobody's */
		assert_ptr_equal(rig->st->blk.acc, acc);
		read_row(rig, used - 1, row);
		writer_drop_blocks(rig->writer, acc);
		assert_null(rig->st->blk.acc);
		assert_int_equal(ring_close(&blk), 0); /* it was not lost after all */
		assert_memory_equal(rig->st->head + (size_t)(HEAD - 1) * bytes, row,
				    rig->nx.desc.tail_off);
		replay_append_plain(&rig->nx.fx, rig->writer, 0, 10); /* it goes on in another */
		close_rig(rig);
	}
}

TEST(writer_seal_row__covers_all_but_the_seal)
{
	struct rig *rig = open_rig(NODES_WIRE);
	uint32_t bytes = rig->nx.desc.row_bytes, crc;
	_Alignas(8) uint8_t row[4096];

	memset(row, 7, sizeof(row));
	writer_seal_row(&rig->nx.desc, row);
	crc = tail_of(rig, row).crc;
	assert_int_equal(crc, crc32c(0, row, bytes - 4));
	for (uint32_t i = 0; i < bytes - 4; i += 13) {
		row[i] ^= 1;
		assert_int_not_equal(crc, crc32c(0, row, bytes - 4));
		row[i] ^= 1;
	}
	close_rig(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}
