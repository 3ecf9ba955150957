/*
 * json.h - a JSON writer to a stream.
 *
 *   json_object_begin(&j); json_key(&j, "ns"); json_double(&j, 41.2); json_object_end(&j);
 *   json_newline(&j); ret = json_finish(&j);
 *
 * Errors stick: the calls return nothing, json_finish returns the first error. The writer places
 * commas and checks that keys, values and ends come where they may.
 */
#ifndef RLV_BASE_JSON_H
#define RLV_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define JSON_DEPTH_MAX 32

struct json {
	FILE *file;
	int error;      /* the first, 0 while all is well */
	unsigned depth; /* open objects and arrays */
	bool is_object[JSON_DEPTH_MAX];
	bool has_member[JSON_DEPTH_MAX];
	bool has_key;  /* a key waits for its value */
	bool has_root; /* the line has its top-level value */
};

/* Starts a writer to file, which is borrowed until json_finish. Thread: owner, for all json_*. */
void json_init(struct json *json, FILE *file);

void json_object_begin(struct json *json);
void json_object_end(struct json *json);
void json_array_begin(struct json *json);
void json_array_end(struct json *json);
void json_key(struct json *json, const char *key);

/* Writes text as a string; bytes that are not UTF-8 become U+FFFD. A NULL text writes null. */
void json_string(struct json *json, const char *text);
void json_u64(struct json *json, uint64_t value);
void json_i64(struct json *json, int64_t value);

/* Writes the shortest form that reads back as the same double; NaN and infinities write null. */
void json_double(struct json *json, double value);
void json_bool(struct json *json, bool value);

/* Writes the key, then its value. */
void json_put_string(struct json *json, const char *key, const char *text);
void json_put_u64(struct json *json, const char *key, uint64_t value);
void json_put_i64(struct json *json, const char *key, int64_t value);
void json_put_double(struct json *json, const char *key, double value);
void json_put_bool(struct json *json, const char *key, bool value);

/* Writes a newline, needed after each top-level value; inside an object or array it is an error. */
void json_newline(struct json *json);

/* As json_finish; a newline goes before if the last top-level value has none yet. */
int json_end(struct json *json) RLV_MUST_CHECK;

/*
 * Flushes the stream and returns its first error: -EINVAL (a call out of place, or an object left
 * open), -EIO (the stream failed).
 */
int json_finish(struct json *json) RLV_MUST_CHECK;

#endif
