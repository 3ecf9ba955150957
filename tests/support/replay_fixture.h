/*
 * replay_fixture.h - a store in this process, a table, and an oracle that is told what goes in.
 */
#ifndef RLV_TESTS_SUPPORT_REPLAY_FIXTURE_H
#define RLV_TESTS_SUPPORT_REPLAY_FIXTURE_H

#include "tests/support/replay_oracle.h"

/* Columns of the tests: obs and frame are RLV_OBS; or obs plain and `after` an RLV_NEXT. */
#define REPLAY_COLUMNS 6
extern const struct rlv_column replay_obs_columns[REPLAY_COLUMNS];
#define REPLAY_NEXT_COLUMNS 6
extern const struct rlv_column replay_next_columns[REPLAY_NEXT_COLUMNS];

struct replay_fixture {
	struct rlv_store *store;
	struct rlv_table *table;
	struct replay_oracle oracle;
};

/*
 * opts: what the test cares about; columns NULL = replay_obs_columns, capacity 0 = 4096. Fails the
 * test on any error.
 */
void replay_open(struct replay_fixture *fx, const struct rlv_table_opts *opts);

/* Verifies the table, then closes all; writers and samplers are closed before. */
void replay_close(struct replay_fixture *fx);

struct rlv_writer *replay_writer(struct replay_fixture *fx, uint32_t streams);
struct rlv_sampler *replay_sampler(struct replay_fixture *fx, const struct rlv_sampler_opts *opts);
void replay_writer_done(struct rlv_writer **writer);
void replay_sampler_done(struct rlv_sampler **sampler);

/* The end of a test: closes its sampler, its writer and the rest. */
void replay_end(struct replay_fixture *fx, struct rlv_writer **writer,
		struct rlv_sampler **sampler);

/* One row of n that follow each other in a stream; flags and td may be NULL. */
struct replay_put {
	uint32_t stream;       /* of the writer */
	uint32_t first_stream; /* the oracle's number of the writer's stream 0 */
	uint32_t n;
	const uint16_t *flags;
	const double *td;
	uint32_t version;
};

/* Appends and tells the oracle what was taken; the result of the append. */
int replay_append(struct replay_fixture *fx, struct rlv_writer *writer,
		  const struct replay_put *put);

/* n plain steps of stream `stream`; fails the test on any error. */
void replay_append_plain(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
			 uint32_t n);

/* An episode of n steps whose last one has `flag`, with a final row if `final`. */
void replay_append_episode(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
			   uint32_t n, uint16_t flag, bool final);

/* One step of each of n streams, flags and td of n or NULL. */
int replay_append_vector(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t n,
			 const uint16_t *flags, const double *td);

/* Column pointers of n rows of a stream from `row` on, valid until the next call. n <= 4096. */
const void *const *replay_columns(const struct replay_fixture *fx, uint32_t stream, size_t row,
				  uint32_t n);

int replay_end_episode(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream,
		       bool final);

/* Draws n at once and checks the code; the caller releases. */
const struct rlv_batch *replay_sample(struct rlv_sampler *sampler, uint32_t n);

/* Fails the test unless rlv_table_verify finds nothing. */
void replay_verify(struct rlv_table *table);

struct rlv_table_info replay_info(struct rlv_table *table);
struct rlv_stats replay_writer_stats(struct rlv_writer *writer);
struct rlv_stats replay_sampler_stats(struct rlv_sampler *sampler);

/* Fails the test unless rc is the code and the message has the word. */
void replay_expect(int rc, int code, const char *word);

#endif
