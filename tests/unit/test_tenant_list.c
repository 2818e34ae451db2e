/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tenant_list.c: lists stay in order whatever is put in and taken out, and the changes
 * that a reload takes back are found, these and no others.
 */
#include "daemon/tenant_list.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/random.h"
#include "tests/unit/tenants.h"
#include "tests/unit/test.h"

/* Names that a test tells from each other: "a", "b" and so on, as in a text. */
static void list_of(const char *names, struct tenant_list *ret_list)
{
	*ret_list = (struct tenant_list){0};
	for (; *names; names++) {
		char name[2] = {*names, '\0'};
		struct tenant_settings settings = tenants_make(name, (uint32_t)*names);

		if (tenant_list_put(ret_list, &settings) < 0)
			abort();
	}
}

static const char *names_of(const struct tenant_list *list)
{
	static char names[64];
	size_t used = 0;

	for (size_t i = 0; i < list->count && used < sizeof(names) - 1; i++)
		names[used++] = list->items[i].name[0];
	names[used] = '\0';
	return names;
}

TEST(tenant_list_put__in_any_order)
{
	struct tenant_settings settings;
	struct tenant_list list;

	list_of("dbcae", &list);
	CHECK_STR(names_of(&list), "abcde");
	settings = tenants_make("c", 1000);
	CHECK_INT(tenant_list_put(&list, &settings), 0);
	CHECK_STR(names_of(&list), "abcde");
	CHECK(tenants_equal(tenant_list_find(&list, "c"), &settings));
	CHECK(!tenants_equal(tenant_list_find(&list, "b"), &settings));
	tenant_list_free(&list);
	CHECK(list.items == NULL);
	CHECK_INT(list.count, 0);
}

TEST(tenant_list_find__neighbours)
{
	struct tenant_list list = {0};

	CHECK(tenant_list_find(&list, "a") == NULL);
	list_of("bd", &list);
	CHECK(tenant_list_find(&list, "a") == NULL);
	CHECK_STR(tenant_list_find(&list, "b")->name, "b");
	CHECK(tenant_list_find(&list, "bb") == NULL);
	CHECK(tenant_list_find(&list, "c") == NULL);
	CHECK_STR(tenant_list_find(&list, "d")->name, "d");
	CHECK(tenant_list_find(&list, "e") == NULL);
	CHECK(tenant_list_find(&list, "") == NULL);
	tenant_list_free(&list);
}

TEST(tenant_list_remove__ends_and_middle)
{
	struct tenant_list list;

	list_of("abcde", &list);
	tenant_list_remove(&list, "c");
	tenant_list_remove(&list, "c");
	tenant_list_remove(&list, "x");
	CHECK_STR(names_of(&list), "abde");
	tenant_list_remove(&list, "a");
	tenant_list_remove(&list, "e");
	CHECK_STR(names_of(&list), "bd");
	tenant_list_remove(&list, "d");
	tenant_list_remove(&list, "b");
	CHECK_INT(list.count, 0);
	tenant_list_remove(&list, "b");
	tenant_list_free(&list);
}

TEST(tenant_list_own__sorts)
{
	struct tenant_settings *items = tenants_many(12, 1);
	struct tenant_list list;

	tenant_list_own(&list, items, 12);
	CHECK_INT(list.count, 12);
	for (size_t i = 1; i < list.count; i++)
		CHECK(strcmp(list.items[i - 1].name, list.items[i].name) < 0);
	CHECK_STR(tenant_list_find(&list, "t11")->name, "t11");
	tenant_list_free(&list);
	tenant_list_own(&list, NULL, 0);
	CHECK(tenant_list_find(&list, "t1") == NULL);
	tenant_list_free(&list);
}

TEST(tenant_list_copy__is_apart)
{
	struct tenant_list list, copy;

	list_of("ab", &list);
	CHECK_INT(tenant_list_copy(&list, &copy), 0);
	tenant_list_remove(&list, "a");
	CHECK_STR(names_of(&copy), "ab");
	tenant_list_free(&list);
	CHECK_STR(names_of(&copy), "ab");
	tenant_list_free(&copy);
	CHECK_INT(tenant_list_copy(&list, &copy), 0);
	CHECK_INT(copy.count, 0);
	tenant_list_free(&copy);
}

TEST(tenant_list_same__what_counts)
{
	struct tenant_list a, b;

	list_of("ab", &a);
	list_of("bc", &b);
	CHECK(tenant_list_same(&a, &b, "b"));
	CHECK(tenant_list_same(&a, &b, "x"));
	CHECK(!tenant_list_same(&a, &b, "a"));
	CHECK(!tenant_list_same(&a, &b, "c"));
	b.items[0].quota.rights = 1;
	CHECK(!tenant_list_same(&a, &b, "b"));
	b.items[0].quota.rights = a.items[1].quota.rights;
	CHECK(tenant_list_same(&a, &b, "b"));
	/* The same keys in another order are the same. */
	tenants_key(500, a.items[1].keys[1]);
	a.items[1].key_count = 2;
	CHECK(!tenant_list_same(&a, &b, "b"));
	tenants_key(500, b.items[0].keys[0]);
	tenants_key('b', b.items[0].keys[1]);
	b.items[0].key_count = 2;
	CHECK(tenant_list_same(&a, &b, "b"));
	tenants_key(501, b.items[0].keys[0]);
	CHECK(!tenant_list_same(&a, &b, "b"));
	tenant_list_free(&a);
	tenant_list_free(&b);
}

/* Each field of a quota counts, by as little as one. */
TEST(tenant_settings_same_quota__every_field)
{
	struct tenant_settings a = tenants_make("a", 1), b = a;

	CHECK(tenant_settings_same(&a, &b));
	for (int i = 0; i < TENANT_RESOURCES; i++) {
		b.quota.limit[i]--;
		CHECK(!tenant_settings_same_quota(&a, &b));
		b.quota.limit[i]++;
	}
	b.quota.requests_per_second++;
	CHECK(!tenant_settings_same_quota(&a, &b));
	b = a;
	b.quota.lease_max_bytes--;
	CHECK(!tenant_settings_same_quota(&a, &b));
	b = a;
	b.quota.ttl_max_ms--;
	CHECK(!tenant_settings_same_quota(&a, &b));
	b = a;
	b.quota.rights ^= 4;
	CHECK(!tenant_settings_same_quota(&a, &b));
	b = a;
	strcpy(b.name, "b");
	CHECK(tenant_settings_same(&a, &b));
}

TEST(tenant_settings_share_key__any_of_them)
{
	struct tenant_settings a = tenants_make("a", 1), b = tenants_make("b", 2);

	tenants_key(3, a.keys[1]);
	tenants_key(4, b.keys[1]);
	a.key_count = b.key_count = 2;
	CHECK(!tenant_settings_share_key(&a, &b));
	tenants_key(3, b.keys[1]);
	CHECK(tenant_settings_share_key(&a, &b));
	CHECK(tenant_settings_share_key(&b, &a));
	b.key_count = 1;
	CHECK(!tenant_settings_share_key(&a, &b));
}

/* Changes that were told, as text: "+a" added, "*b" changed, "-c" removed. */
struct told {
	char text[128];
	size_t used;
};

static void note(const char *name, enum tenant_list_change change, void *arg)
{
	struct told *told = arg;

	if (told->used + 2 >= sizeof(told->text))
		abort();
	told->text[told->used++] = "+*-"[change];
	told->text[told->used++] = name[0];
}

/* A capital letter is the tenant of the small one with another quota. */
static void varied(const char *names, struct tenant_list *ret_list)
{
	*ret_list = (struct tenant_list){0};
	for (; *names; names++) {
		bool is_other = *names >= 'A' && *names <= 'Z';
		char name[2] = {is_other ? (char)(*names + 'a' - 'A') : *names, '\0'};
		struct tenant_settings settings = tenants_make(name, (uint32_t)name[0]);

		settings.quota.limit[TENANT_LEASES] -= is_other;
		if (tenant_list_put(ret_list, &settings) < 0)
			abort();
	}
}

static const char *lost(const char *base_names, const char *live_names, const char *next_names)
{
	static struct told told;
	struct tenant_list base, live, next;

	told = (struct told){0};
	varied(base_names, &base);
	varied(live_names, &live);
	varied(next_names, &next);
	tenant_list_lost(&base, &live, &next, note, &told);
	tenant_list_free(&base);
	tenant_list_free(&live);
	tenant_list_free(&next);
	return told.text;
}

TEST(tenant_list_lost__cases)
{
	static const struct {
		const char *base, *live, *next, *lost;
	} cases[] = {
		{"", "", "", ""},
		{"abc", "abc", "abc", ""},
		{"abc", "abc", "ABC", ""},   /* only the files have changed */
		{"abc", "abc", "", ""},	     /* and so here */
		{"", "", "abc", ""},	     /* and here */
		{"abc", "aBc", "abc", "*b"}, /* a change goes */
		{"abc", "aBc", "aBc", ""},   /* unless the files say the same meanwhile */
		{"abc", "aBc", "ac", "*b"},  /* it goes with its tenant */
		{"abc", "ac", "abc", "-b"},  /* a removal goes */
		{"abc", "ac", "ac", ""},     /* unless the files remove it as well */
		{"abc", "ac", "aBc", "-b"},
		{"ac", "abc", "ac", "+b"}, /* an addition goes */
		{"ac", "abc", "abc", ""},
		{"ac", "abc", "aBc", "+b"},
		{"abc", "ABd", "abc", "*a*b+d-c"},
		{"abc", "", "abc", "-a-b-c"},
		{"", "abc", "", "+a+b+c"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		printf("# %s, %s, %s\n", cases[i].base, cases[i].live, cases[i].next);
		CHECK_STR(lost(cases[i].base, cases[i].live, cases[i].next), cases[i].lost);
	}
}

TEST(tenant_list_change_name__all)
{
	CHECK_STR(tenant_list_change_name(TENANT_LIST_ADDED), "added");
	CHECK_STR(tenant_list_change_name(TENANT_LIST_CHANGED), "changed");
	CHECK_STR(tenant_list_change_name(TENANT_LIST_REMOVED), "removed");
}

/* Against an array of flags. */
TEST(tenant_list__random)
{
	bool there[64] = {false};
	struct tenant_list list = {0};
	struct random random = random_start();
	size_t count = 0;

	for (int i = 0; i < 20000; i++) {
		uint32_t n = (uint32_t)random_below(&random, 64);
		struct tenant_settings settings;
		char name[8];

		snprintf(name, sizeof(name), "t%u", n);
		settings = tenants_make(name, n + 1);
		CHECK_INT(tenant_list_find(&list, name) != NULL, there[n]);
		if (random_below(&random, 2) == 0) {
			CHECK_INT(tenant_list_put(&list, &settings), 0);
			count += !there[n];
			there[n] = true;
		} else {
			tenant_list_remove(&list, name);
			count -= there[n];
			there[n] = false;
		}
		CHECK_INT(list.count, count);
	}
	tenant_list_free(&list);
}
