/* SPDX-License-Identifier: BSD-3-Clause */
/* What the QP of an accepted connection is given; librdmacm and the device are the test's. */
#include "daemon/accept.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "proto/error.h"
#include "tests/unit/test.h"

#define QPN	    0x1234
#define REQUEST_TC  0x20 /* what the request says */
#define REQUEST_TMO 17

int __wrap_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len);
int __wrap_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

static struct {
	enum ibv_mtu mtu;	    /* of the request */
	struct ibv_qp_attr attr[8]; /* by the state that the QP was moved to */
	int mask[8];
	int moves;
	int fail_at; /* the call that fails, from 1; 0: none */
	int calls;
	bool accepted;
	bool kept_qp;
	bool had_qp; /* as rdma_accept() saw it */
	uint32_t qpn;
	uint8_t tos;
	int tos_calls;
} seen;

static bool fails(void)
{
	if (++seen.calls != seen.fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

int __wrap_rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	if (fails())
		return -1;
	attr->path_mtu = seen.mtu;
	attr->ah_attr.grh.traffic_class = REQUEST_TC;
	attr->timeout = REQUEST_TMO;
	attr->max_dest_rd_atomic = 99;
	attr->max_rd_atomic = 98;
	*mask = IBV_QP_STATE | 0x600000;
	return 0;
}

int __wrap_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	if (fails())
		return -ENOMEM;
	seen.attr[attr->qp_state] = *attr;
	seen.mask[attr->qp_state] = mask;
	seen.moves++;
	return 0;
}

int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	if (fails())
		return -1;
	seen.accepted = true;
	seen.had_qp = id->qp != NULL;
	seen.qpn = param->qp_num;
	return 0;
}

int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	(void)id;
	if (fails())
		return -1;
	if (level != RDMA_OPTION_ID || name != RDMA_OPTION_ID_TOS || len != 1)
		abort();
	seen.tos = *(uint8_t *)value;
	seen.tos_calls++;
	return 0;
}

/* Return: as accept_connection(). */
static int accept_with(struct config *config, int fail_at)
{
	struct ibv_qp qp = {.qp_num = QPN};
	struct rdma_cm_id id = {.qp = &qp};
	struct rdma_conn_param param = {.responder_resources = 7, .initiator_depth = 3};
	int r;

	memset(&seen, 0, sizeof(seen));
	seen.mtu = IBV_MTU_1024;
	seen.fail_at = fail_at;
	r = accept_connection(&id, &param, config);
	seen.kept_qp = id.qp == &qp;
	return r;
}

TEST(accept_connection__as_the_request_says)
{
	struct config config;

	config_defaults(&config);
	CHECK_INT(accept_with(&config, 0), 0);
	CHECK_INT(seen.moves, 0);
	CHECK(seen.accepted && seen.had_qp);
	CHECK_INT(accept_with(&config, 1), -ENOMEM);
	CHECK(!seen.accepted);
}

TEST(accept_connection__traffic_class)
{
	struct config config;

	config_defaults(&config);
	config.traffic_class = 0xb8;
	CHECK_INT(accept_with(&config, 0), 0);
	CHECK_INT(seen.moves, 3);
	CHECK_INT(seen.attr[IBV_QPS_RTR].ah_attr.grh.traffic_class, 0xb8);
	CHECK_INT(seen.attr[IBV_QPS_RTR].path_mtu, IBV_MTU_1024);
	CHECK_INT(seen.attr[IBV_QPS_RTR].max_dest_rd_atomic, 7);
	CHECK_INT(seen.attr[IBV_QPS_RTS].max_rd_atomic, 3);
	CHECK_INT(seen.attr[IBV_QPS_RTS].timeout, REQUEST_TMO);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		CHECK_INT(seen.mask[state], IBV_QP_STATE);
	/* librdmacm would move it once more. */
	CHECK(seen.accepted && !seen.had_qp && seen.kept_qp);
	CHECK_INT(seen.qpn, QPN);
}

TEST(accept_connection__ack_timeout)
{
	struct config config;

	config_defaults(&config);
	config.ack_timeout_ms = 67;
	CHECK_INT(accept_with(&config, 0), 0);
	CHECK_INT(seen.attr[IBV_QPS_RTR].ah_attr.grh.traffic_class, REQUEST_TC);
	CHECK_INT(seen.attr[IBV_QPS_RTS].timeout, 14);
	CHECK(seen.accepted && !seen.had_qp);
}

/* Whichever of the seven calls fails. */
TEST(accept_connection__failures)
{
	struct config config;

	config_defaults(&config);
	config.ack_timeout_ms = 1;
	for (int call = 1; call <= 7; call++) {
		CHECK_INT(accept_with(&config, call), -ENOMEM);
		CHECK(!seen.accepted && seen.kept_qp);
	}
	CHECK_INT(accept_with(&config, 8), 0);
}

/* 4.096 us times two, four, ...: never shorter than asked for. */
TEST(accept_timeout_exponent__values)
{
	static const struct {
		uint64_t ms;
		uint8_t exponent;
	} cases[] = {
		{0, 1},	    {1, 8},	{2, 9},	    {3, 10},	 {4, 10},
		{5, 11},    {67, 14},	{68, 15},   {1000, 18},	 {1073, 18},
		{1074, 19}, {8589, 21}, {8590, 22}, {10000, 22}, {UINT64_MAX, 31},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t exponent = accept_timeout_exponent(cases[i].ms);

		if (exponent != cases[i].exponent)
			printf("# %llu ms\n", (unsigned long long)cases[i].ms);
		CHECK_INT(exponent, cases[i].exponent);
	}
}

TEST(accept_check__path_mtu)
{
	static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048,
					    IBV_MTU_4096};
	struct rdma_cm_id id = {0};
	struct config config;

	config_defaults(&config);
	for (int least = CONFIG_MTU_ANY; least <= CONFIG_MTU_4096; least++) {
		config.path_mtu_min = least;
		for (int i = 0; i < 5; i++) {
			memset(&seen, 0, sizeof(seen));
			seen.mtu = mtus[i];
			CHECK_INT(accept_check(&id, &config), i < least ? ERROR_PORT : 0);
			CHECK_INT(seen.calls, least != CONFIG_MTU_ANY);
		}
	}
	seen.calls = 0;
	seen.fail_at = 1;
	CHECK_INT(accept_check(&id, &config), ERROR_INTERNAL);
}

TEST(accept_prepare__listener)
{
	struct rdma_cm_id id = {0};
	struct config config;

	memset(&seen, 0, sizeof(seen));
	config_defaults(&config);
	CHECK_INT(accept_prepare(&id, &config), 0);
	CHECK_INT(seen.tos_calls, 0);
	config.traffic_class = 255;
	CHECK_INT(accept_prepare(&id, &config), 0);
	CHECK_INT(seen.tos_calls, 1);
	CHECK_INT(seen.tos, 255);
	seen.calls = 0;
	seen.fail_at = 1;
	CHECK_INT(accept_prepare(&id, &config), -ENOMEM);
}
