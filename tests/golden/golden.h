/*
 * golden.h - writes layouts as text, and compares them with the files of this folder.
 */
#ifndef RLV_TESTS_GOLDEN_GOLDEN_H
#define RLV_TESTS_GOLDEN_GOLDEN_H

#include <stddef.h>
#include <stdio.h>

#define STRUCT(s) (void)fprintf(out, "struct %s %zu\n", #s, sizeof(struct s))
#define FIELD(s, f) \
	(void)fprintf(out, "  %zu %zu %s\n", offsetof(struct s, f), sizeof(((struct s *)0)->f), #f)
#define WORD(call) (void)fprintf(out, "word %016llx %s\n", (unsigned long long)(call), #call)

/* Writes offset and bytes of every 16 that are not all zero. */
void put_bytes(FILE *out, const char *name, const void *bytes, size_t n);

/* Fails the test if what put writes is not what the file NAME.txt holds; see test_layouts.c. */
void check_golden_in(const char *folder, const char *name, void (*put)(FILE *out));
#define check_golden(name, put) check_golden_in(RLV_TEST_SOURCE_DIR "/tests/golden", name, put)

#endif
