/*
 * temp_dir.h - a folder for a test's files and sockets.
 */
#ifndef RLV_TESTS_SUPPORT_TEMP_DIR_H
#define RLV_TESTS_SUPPORT_TEMP_DIR_H

#define TEMP_DIR_BYTES 64

/* Makes a new folder under TMPDIR and writes its name to dir. The caller removes it. */
void temp_dir_make(char dir[TEMP_DIR_BYTES]);

/* Removes a file, or a folder with the files in it. A missing one is no error. */
void temp_dir_remove(const char *path);

#endif
