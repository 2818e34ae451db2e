/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of daemon/log_fields.c, and of what the journal gets. Without libsystemd it gets lines
 * on standard error, as test_log has it.
 */
#include "daemon/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/log_fields.h"
#include "tests/unit/test.h"

static char sent[4096]; /* entries of the last message, a line each */

int __wrap_sd_journal_sendv(const struct iovec *entry, int items);
int __wrap_sd_journal_sendv(const struct iovec *entry, int items)
{
	size_t used = 0;

	for (int i = 0; i < items; i++)
		used += (size_t)snprintf(sent + used, sizeof(sent) - used, "%.*s\n",
					 (int)entry[i].iov_len, (const char *)entry[i].iov_base);
	return 0;
}

/* "name=value;" of each field. */
static const char *found(const char *line, size_t max)
{
	static char text[512];
	struct log_field fields[8];
	size_t count = log_fields_find(line, fields, max);
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s=%.*s;",
					 (int)fields[i].name_len, fields[i].name,
					 (int)fields[i].value_len, fields[i].value);
	return text;
}

TEST(log_fields__forms)
{
	CHECK_STR(found("lease ends id=0x1f tenant=a reason=expired", 8),
		  "id=0x1f;tenant=a;reason=expired;");
	CHECK_STR(found("audit: event=lease-ended peer=192.0.2.7:4791", 8),
		  "event=lease-ended;peer=192.0.2.7:4791;");
	CHECK_STR(found("x why=\"the peer is silent\" n=1", 8), "why=the peer is silent;n=1;");
	CHECK_STR(found("x why=\"\" n=", 8), "why=;n=;");
	CHECK_STR(found("x why=\"a \\\"b\" c", 8), "why=a \\\"b;");
	CHECK_STR(found("x why=\"no \"a b\" there\" n=1", 8), "why=no \"a b\" there;n=1;");
	CHECK_STR(found("x why=\"is \"a\"\" n=1", 8), "why=is \"a\";n=1;");
	CHECK_STR(found("x why=\"is \"a\"\"", 8), "why=is \"a\";");
	CHECK_STR(found("x why=\"\" c", 8), "why=;");
	CHECK_STR(found("x why=\"not ended n=1", 8), "why=not ended n=1;");
	CHECK_STR(found("", 8), "");
	CHECK_STR(found("a=1", 8), "a=1;");
	CHECK_STR(found("  a=1  b_2=3 ", 8), "a=1;b_2=3;");
	CHECK_STR(found("no =1 2a=1 A=1 a-b=1 (a=1", 8), "");
	CHECK_STR(found("a=b=c", 8), "a=b=c;");
	CHECK_STR(found("a=1 b=2 c=3", 2), "a=1;b=2;");
}

/* Within quotes nobody can make a field. */
TEST(log_fields__not_forged)
{
	CHECK_STR(found("x error=\"no such tenant=root file\" n=1", 8),
		  "error=no such tenant=root file;n=1;");
}

TEST(journal__not_ours)
{
	setenv("JOURNAL_STREAM", "8:1", 1);
	CHECK(!journal_open());
	unsetenv("JOURNAL_STREAM");
	CHECK(!journal_open());
}

TEST(journal__entries)
{
	char text[64];
	struct stat st;
	bool is_open;

	CHECK_INT(fstat(STDERR_FILENO, &st), 0);
	snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", text, 1);
	is_open = journal_open();
	unsetenv("JOURNAL_STREAM");
	if (!is_open)
		SKIP("built without libsystemd");
	log_set_level(LOG_LEVEL_DEBUG);
	log_warn("tenant banned tenant=%s ban_ms=%d why=\"%s\"", "a", 5, "x\ny=1");
	CHECK_STR(sent, "MESSAGE=tenant banned tenant=a ban_ms=5 why=\"x\\x0ay=1\"\n"
			"PRIORITY=4\nSYSLOG_IDENTIFIER=mempoold\nMEMPOOL_TENANT=a\n"
			"MEMPOOL_BAN_MS=5\nMEMPOOL_WHY=x\\x0ay=1\n");
	log_debug("hello");
	CHECK_STR(sent, "MESSAGE=hello\nPRIORITY=7\nSYSLOG_IDENTIFIER=mempoold\n");
	log_error("%01500d", 0);
	CHECK_INT(strcspn(sent, "\n"), strlen("MESSAGE=") + 999);
	log_set_sink(NULL);
}
