/*
 * Version of the daemons, for people who read a log or `relive status`.
 */
#ifndef RLV_SERVER_DAEMON_VERSION_H
#define RLV_SERVER_DAEMON_VERSION_H

#define SERVER_VERSION "0.1.0"

#endif
