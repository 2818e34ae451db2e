/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_LIST_H
#define CLIENT_CTL_LIST_H

#include "client/ctl/command.h"

/**
 * list_select() - leave the rows that the options ask for, in the order that they ask for
 * @fields: columns that rows can be sorted by
 * @rows: an array of objects; changed
 *
 * A row without the member that a filter or the order is about does not match, or comes last.
 * Return: STATUS_OK, or it has complained.
 */
enum exit_status list_select(const struct options *options, const struct table_field *fields,
			     json_t *rows);

/**
 * list_run() - a command that asks for a list, selects and prints it
 * @member: of the result, which is the list
 */
enum exit_status list_run(const struct options *options, const char *method, const char *member,
			  const struct table_field *fields);

#endif
