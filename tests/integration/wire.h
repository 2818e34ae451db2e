/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_WIRE_H
#define TESTS_INTEGRATION_WIRE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A test guest that talks to itself over a wire: rxe0 on v0, where the daemon is, and rxe1 on
 * v1, from where the clients come. What leaves one of the two can be lost, and neighbours
 * can change, which cannot be had where a machine talks to itself without a wire.
 */

#define WIRE_DAEMON "v0"
#define WIRE_CLIENT "v1"

/** wire_test() - a test case on the wire; as machine_test() */
void wire_test(const char *name, uint64_t limit_ms, void (*run)(void));

/** wire_drop() - all that leaves WIRE_DAEMON or WIRE_CLIENT is lost, or nothing; Return: done? */
bool wire_drop(const char *device, bool drop);

/** wire_delay() - all that leaves it arrives so much later; 0: at once; Return: done? */
bool wire_delay(const char *device, uint32_t ms);

/** wire_received() - bytes that have come to a device; 0 if unknown */
uint64_t wire_received(const char *device);

/** wire_flush() - forget both neighbours, and learn them anew; Return: done? */
bool wire_flush(void);

/** wire_wrong_neighbours() - both have an address that nobody has, until wire_flush() */
bool wire_wrong_neighbours(void);

/** wire_change_mac() - a new address for a device, which its neighbour learns; Return: done? */
bool wire_change_mac(const char *device);

#endif
