/*
 * Version of the daemons, shown in logs and by `relive status`.
 */
#ifndef RLV_SERVER_DAEMON_VERSION_H
#define RLV_SERVER_DAEMON_VERSION_H

#define SERVER_VERSION "0.1.0"

#endif
