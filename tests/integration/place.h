/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_PLACE_H
#define TESTS_INTEGRATION_PLACE_H

#include <stddef.h>
#include <stdint.h>

#define PLACE_TEXT_MAX 256

/* A folder for files of a test, with what a program needs to be a tenant. All zero: none. */
struct place {
	char dir[64];
	char key[PLACE_TEXT_MAX];     /* path of the tenant's key file */
	char address[PLACE_TEXT_MAX]; /* of the daemon, with its key */
};

/** place_make() - Return: 0 or a negative errno; place_remove() in any case */
int place_make(struct place *place, const char *tenant);

/** place_remove() - with all files in it */
void place_remove(struct place *place);

/** place_path() - @buf: PLACE_TEXT_MAX bytes; Return: @buf */
char *place_path(const struct place *place, const char *name, char *buf);

/** place_write() - a file with the pattern of harness_fill(); Return: 0 or a negative errno */
int place_write(const struct place *place, const char *name, size_t len_bytes, uint32_t seed);

/** place_holds() - is a file just that pattern? Return: 1, 0, or a negative errno */
int place_holds(const struct place *place, const char *name, size_t len_bytes, uint32_t seed);

/* A place in a variable of the test case, removed with it. */
#define PLACE(name, tenant)                                             \
	__attribute__((cleanup(place_remove))) struct place name = {0}; \
	CHECK_INT(place_make(&name, tenant), 0)

#endif
