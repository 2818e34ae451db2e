/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a peer that does not answer is waited for. */
#include "client/cm.h"

#include "tests/unit/test.h"

/* Six tries of 4.096 us * 2^n. */
TEST(cm_ack_timeout__boundaries)
{
	CHECK_INT(cm_ack_timeout(0), 14);
	CHECK_INT(cm_ack_timeout(1), 14);
	CHECK_INT(cm_ack_timeout(805), 14);
	CHECK_INT(cm_ack_timeout(806), 15);
	CHECK_INT(cm_ack_timeout(1610), 15);
	CHECK_INT(cm_ack_timeout(1611), 16);
	CHECK_INT(cm_ack_timeout(2500), 16);
	CHECK_INT(cm_ack_timeout(3221), 16);
	CHECK_INT(cm_ack_timeout(3222), 17);
	CHECK_INT(cm_ack_timeout(30000), 17);
	CHECK_INT(cm_ack_timeout(UINT32_MAX), 17);
}
