/* SPDX-License-Identifier: Apache-2.0 */
/* A doubly linked list: a ring of links with its head. A link that is in no list may be zero. */
#ifndef SL_LIST_H
#define SL_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define SL_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct sl_list {
	struct sl_list *next, *previous;
};

#define SL_LIST_INIT(list)       \
	{                        \
		&(list), &(list) \
	}
static inline void sl_list_init(struct sl_list *list)
{
	list->next = list->previous = list;
}
static inline bool sl_list_empty(const struct sl_list *list)
{
	return list->next == list;
}
static inline void sl_list_append(struct sl_list *list, struct sl_list *link)
{
	link->previous = list->previous;
	link->next = list;
	list->previous->next = link;
	list->previous = link;
}
static inline void sl_list_remove(struct sl_list *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
	link->next = link->previous = NULL;
}
static inline bool sl_list_linked(const struct sl_list *link)
{
	return link->next;
}
/* Moves a link from its list to the end of another. */
static inline void sl_list_move(struct sl_list *link, struct sl_list *to)
{
	sl_list_remove(link);
	sl_list_append(to, link);
}
/* Removes the first link and returns it; NULL if the list is empty. */
static inline struct sl_list *sl_list_take(struct sl_list *list)
{
	struct sl_list *link = list->next;

	if (link == list)
		return NULL;
	sl_list_remove(link);
	return link;
}
/* The same, with the element whose link is so many bytes behind its begin. */
static inline void *sl_list_take_at(struct sl_list *list, size_t offset)
{
	struct sl_list *link = sl_list_take(list);

	return link ? (char *)link - offset : NULL;
}
#define sl_list_take_first(list, type, member) \
	((type *)sl_list_take_at(list, offsetof(type, member)))
/* Moves all links behind those of the other list. */
static inline void sl_list_take_all(struct sl_list *from, struct sl_list *to)
{
	while (from->next != from)
		sl_list_append(to, sl_list_take(from));
}
#define sl_list_each(link, list) \
	for (struct sl_list *link = (list)->next; link != (list); link = link->next)
/* Visits each element of a list by its member `member`; the body may remove that element. */
#define sl_list_each_of(item, list, type, member)                                               \
	for (type *item = sl_list_first(list, type, member), *item##_next;                      \
	     item && (item##_next = sl_list_item(item->member.next, list, type, member), true); \
	     item = item##_next)
#define sl_list_item(link, list, type, member) \
	((link) == (list) ? NULL : SL_CONTAINER(link, type, member))
#define sl_list_first(list, type, member) sl_list_item((list)->next, list, type, member)

#endif
