# relive.h as a later release may have it: one more field at the end of each struct that grows.
/^struct rlv_.* \{$/ { grows = /rlv_(node|shard)_info/ }
/^\tuint32_t size;/ { grows = 1 }
/^};/ && grows { print "\tuint64_t from_the_future;"; grows = 0 }
{ print }
