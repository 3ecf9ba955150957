# Tests: tests/<level>/[*/]test_*.c is one cmocka binary each, test_*.sh one script each, both with the
# label <level>; tests/fuzz/fuzz_*.c are fuzz targets, tests/vm/stages/*.sh run in guests and have the
# label vm, tests/learn/test_*.py train networks and have the label learn, tests/wheel/test_*.py are
# about what pip builds and have the label wheel. Exit 77 means skipped.

set(RLV_LEVELS unit contract model stress fault integration golden)
set(test_env "RLV_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "RLV_SOURCE_DIR=${PROJECT_SOURCE_DIR}")

# Tests are hundreds of programs, and no measured ones: less of an optimiser and of notes for a debugger
# halves what they take to compile, and lld what they take to link.
set(test_flags $<$<CONFIG:Release>:-O1> $<$<CONFIG:Release>:-g1>)
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=lld RLV_HAVE_LLD)
set(test_link $<$<BOOL:${RLV_HAVE_LLD}>:-fuse-ld=lld>)

function(rlv_add_test name level)
	add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
	# Ends what hangs. A host of slow processors may take ten times as long as one that develops.
	set_tests_properties(${name} PROPERTIES LABELS ${level} SKIP_RETURN_CODE 77
		ENVIRONMENT "${test_env}" TIMEOUT 900)
	if(level MATCHES "^(stress|integration)$")
		set_tests_properties(${name} PROPERTIES TIMEOUT 1800)
	endif()
	# What keeps both processors busy, or says how long something may take. Other tests of daemons
	# wait for nine tenths of their time, and so run beside others.
	if(level STREQUAL stress OR name MATCHES "^integration\\.test_(cli|hosts_faults|kill_.*|nodes|noise|rogue_node|slow_server|syscalls)$")
		set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
	endif()
endfunction()

rlv_sources(support tests/support)
if(NOT VERBS_FOUND)
	list(FILTER support EXCLUDE REGEX "/(fake|raw)_verbs[^/]*\\.c$")
endif()
if(NOT ZLIB_FOUND)
	list(FILTER support EXCLUDE REGEX "/png_file\\.c$")
endif()
if(support AND CMOCKA_FOUND)
	add_library(relive_support STATIC ${support})
	target_link_libraries(relive_support PUBLIC relive_flags PkgConfig::PROTOBUF_C PkgConfig::CMOCKA
		PkgConfig::OPENSSL)
	if(ZLIB_FOUND)
		target_link_libraries(relive_support PUBLIC PkgConfig::ZLIB)
	endif()
	if(TARGET relive_proto)
		add_dependencies(relive_support relive_proto)
	endif()
endif()

# tests_<level> builds what one level runs by itself, for the presets that run only some.
foreach(level ${RLV_LEVELS} fuzz)
	add_custom_target(tests_${level})
	foreach(module relive_verbs relive_ofi) # which tests open
		if(TARGET ${module})
			add_dependencies(tests_${level} ${module})
		endif()
	endforeach()
endforeach()

# A libpmem that remembers what was persisted: tests of power failures load it instead.
if(PMEM_FOUND)
	find_library(PMEM_LIBRARY NAMES libpmem.so.1 pmem HINTS ${PMEM_LIBRARY_DIRS} ${PMEM_LIBDIR})
	add_library(shadow_pmem MODULE ${PROJECT_SOURCE_DIR}/tests/shadow/libpmem.c)
	target_link_libraries(shadow_pmem PRIVATE relive_flags Threads::Threads ${CMAKE_DL_LIBS})
	target_compile_definitions(shadow_pmem PRIVATE RLV_REAL_LIBPMEM="${PMEM_LIBRARY}")
	set_target_properties(shadow_pmem PROPERTIES OUTPUT_NAME pmem SUFFIX .so.1
		LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/shadow)
	add_dependencies(tests_integration shadow_pmem)
endif()

# A host as the environment describes it, which is also a libfabric. Without sanitizers: it is loaded
# before their runtimes, and into a shell.
add_library(shadow_host MODULE ${PROJECT_SOURCE_DIR}/tests/shadow/host.c)
target_include_directories(shadow_host PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(shadow_host PRIVATE _GNU_SOURCE)
target_compile_options(shadow_host PRIVATE -Wall -Wextra -Werror)
target_link_libraries(shadow_host PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(shadow_host PROPERTIES OUTPUT_NAME fabric SUFFIX .so.1
	LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/shadow/host)
add_dependencies(tests_integration shadow_host)

# The kernels' PTX beside their sources, where the nvcc that made it is there.
rlv_add_test(unit.ptx unit ${PROJECT_SOURCE_DIR}/tools/ptx --check)

# A CUDA driver without a GPU: the cuda backend's tests open it instead of the system's.
rlv_sources(fakecuda tests/fakecuda)
add_library(fakecuda MODULE ${fakecuda})
target_link_libraries(fakecuda PRIVATE relive_flags Threads::Threads)
set_target_properties(fakecuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1
	LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/fakecuda)
foreach(level unit contract model stress fault integration)
	add_dependencies(tests_${level} fakecuda)
endforeach()
if(TARGET gpu_probe)
	add_dependencies(tests_integration gpu_probe micro_landing)
endif()

# The module of rdma-core, and one in its stead.
if(VERBS_FOUND)
	add_library(shadow_verbs MODULE ${PROJECT_SOURCE_DIR}/tests/shadow/verbs.c)
	target_link_libraries(shadow_verbs PRIVATE relive_flags)
	set_target_properties(shadow_verbs PROPERTIES OUTPUT_NAME relive-verbs
		LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/shadow)
	add_dependencies(tests_unit relive_verbs shadow_verbs)
endif()

foreach(level ${RLV_LEVELS})
	file(GLOB_RECURSE scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${level}/test_*.sh)
	foreach(script ${scripts})
		get_filename_component(name ${script} NAME_WE)
		rlv_add_test(${level}.${name} ${level} ${script})
	endforeach()
	rlv_sources(tests tests/${level})
	set(shared ${tests})
	list(FILTER tests INCLUDE REGEX "/test_[^/]*\\.c$")
	list(FILTER shared EXCLUDE REGEX "/test_[^/]*\\.c$")
	if(NOT CMOCKA_FOUND)
		continue()
	endif()
	if(NOT VERBS_FOUND)
		list(FILTER tests EXCLUDE REGEX "/test_verbs[^/]*\\.c$")
	endif()
	if(NOT OFI_FOUND)
		list(FILTER tests EXCLUDE REGEX "/test_ofi[^/]*\\.c$")
	endif()
	set(suite)
	if(shared) # compiled once for all programs of the level
		set(suite ${level}_suite)
		add_library(${suite} STATIC ${shared})
		target_compile_options(${suite} PRIVATE ${test_flags})
		rlv_link_by_includes(${suite} ${shared})
	endif()
	foreach(test ${tests})
		get_filename_component(name ${test} NAME_WE)
		set(target ${level}_${name})
		add_executable(${target} ${test})
		target_link_libraries(${target} PRIVATE ${suite})
		rlv_link_by_includes(${target} ${test} ${shared})
		target_link_libraries(${target} PRIVATE PkgConfig::CMOCKA)
		target_compile_options(${target} PRIVATE ${test_flags})
		target_link_options(${target} PRIVATE ${test_link})
		add_dependencies(tests_${level} ${target})
		target_compile_definitions(${target} PRIVATE
			RLV_TEST_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
			RLV_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
		rlv_add_test(${level}.${name} ${level} ${target})
	endforeach()
endforeach()

# The same over the ofi transport, which works on every host, with real daemons.
if(OFI_FOUND AND CMOCKA_FOUND)
	foreach(name crash fenced_client kill_daemons kill_replay kill_stripes kv_copies new_kind nodes save_stores
			stopped_writer)
		rlv_add_test(integration.test_${name}_ofi integration integration_test_${name})
		set_property(TEST integration.test_${name}_ofi APPEND PROPERTY ENVIRONMENT
			RLV_TEST_TRANSPORT=ofi)
		set_tests_properties(integration.test_${name}_ofi PROPERTIES RUN_SERIAL ON)
	endforeach()
endif()

# Their stores' transports are wrapped (see there).
foreach(target unit_test_cost_wire unit_test_costs unit_test_cost_kv unit_test_cost_weights
		unit_test_landing_choice unit_test_landing_direct fault_test_weights integration_test_kill_weights
		integration_test_poold_rdma)
	if(TARGET ${target})
		target_link_options(${target} PRIVATE -Wl,--wrap=transport_open)
	endif()
endforeach()

if(TARGET unit_test_cost_weights)
	target_link_options(unit_test_cost_weights PRIVATE -Wl,--wrap=getrandom)
endif()

if(TARGET fault_test_stripes)
	target_link_options(fault_test_stripes PRIVATE -Wl,--wrap=heap_put -Wl,--wrap=heap_get
		-Wl,--wrap=heap_look)
endif()

if(TARGET integration_test_kill_stripes)
	target_link_options(integration_test_kill_stripes PRIVATE -Wl,--wrap=heap_put
		-Wl,--wrap=heap_put_entry)
endif()

if(TARGET integration_test_stopped_writer)
	target_link_options(integration_test_stopped_writer PRIVATE -Wl,--wrap=transport_post_chain
		-Wl,--wrap=transport_open)
endif()

# One program against an earlier relive.h and a later one, with the library of today.
set(newer ${PROJECT_BINARY_DIR}/gen/newer/relive/relive.h)
add_custom_command(OUTPUT ${newer}
	COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/gen/newer/relive
	COMMAND awk -f ${PROJECT_SOURCE_DIR}/tests/abi/newer.awk
		${PROJECT_SOURCE_DIR}/include/relive/relive.h > ${newer}
	DEPENDS ${PROJECT_SOURCE_DIR}/tests/abi/newer.awk ${PROJECT_SOURCE_DIR}/include/relive/relive.h
	VERBATIM)
foreach(age older newer)
	add_executable(abi_${age} ${PROJECT_SOURCE_DIR}/tests/abi/program.c)
	target_link_libraries(abi_${age} PRIVATE relive)
	if(RLV_SANITIZE) # the runtime has to come first
		target_link_options(abi_${age} PRIVATE -fsanitize=${RLV_SANITIZE})
	endif()
	add_dependencies(tests_unit abi_${age})
	rlv_add_test(unit.abi_${age} unit abi_${age})
endforeach()
target_include_directories(abi_older BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/abi/older)
target_include_directories(abi_newer BEFORE PRIVATE ${PROJECT_BINARY_DIR}/gen/newer)
target_sources(abi_newer PRIVATE ${newer})
target_compile_definitions(abi_newer PRIVATE NEWER)

# What runs in the guests beside the tests themselves.
if(TARGET relive_support)
	foreach(name traffic landing)
		add_executable(vm_${name} ${PROJECT_SOURCE_DIR}/tests/vm/${name}.c)
		rlv_link_by_includes(vm_${name} ${PROJECT_SOURCE_DIR}/tests/vm/${name}.c)
	endforeach()
endif()

file(GLOB fuzzers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
if(NOT VERBS_FOUND)
	list(FILTER fuzzers EXCLUDE REGEX "/fuzz_verbs\\.c$")
endif()
if(NOT OFI_FOUND)
	list(FILTER fuzzers EXCLUDE REGEX "/fuzz_ofi[^/]*\\.c$")
endif()
foreach(fuzzer ${fuzzers})
	get_filename_component(name ${fuzzer} NAME_WE)
	string(REGEX REPLACE "^fuzz_" "" corpus ${name})
	set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
	add_executable(${name} ${fuzzer})
	rlv_link_by_includes(${name} ${fuzzer})
	target_link_options(${name} PRIVATE ${test_link})
	add_dependencies(tests_fuzz ${name})
	# LLVMFuzzerTestOneInput is declared by no header.
	set_source_files_properties(${fuzzer} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
	if(RLV_FUZZ)
		target_link_options(${name} PRIVATE -fsanitize=fuzzer)
		rlv_add_test(fuzz.${name} fuzz ${PROJECT_SOURCE_DIR}/tools/run-fuzz $<TARGET_FILE:${name}> ${corpus})
	else()
		target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
		rlv_add_test(fuzz.${name} fuzz ${name} ${corpus})
	endif()
endforeach()

if(EXISTS ${PROJECT_SOURCE_DIR}/tests/spin/run)
	rlv_add_test(spin.quick spin ${PROJECT_SOURCE_DIR}/tests/spin/run quick)
	rlv_add_test(spin.full spin-full ${PROJECT_SOURCE_DIR}/tests/spin/run full)
	set_tests_properties(spin.quick PROPERTIES TIMEOUT 1800)
	set_tests_properties(spin.full PROPERTIES TIMEOUT 3000)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/tests/relacy/run)
	rlv_add_test(relacy.order spin ${PROJECT_SOURCE_DIR}/tests/relacy/run)
endif()

# Instructions of the data path beside their baseline.
rlv_add_test(calls.instructions calls ${PROJECT_SOURCE_DIR}/bench/calls/run --check ${PROJECT_BINARY_DIR})

# A stage runs in guests and says in its head how many seconds it may take. Then it has a minute to end.
file(GLOB stages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/vm/stages/*.sh)
foreach(stage ${stages})
	get_filename_component(name ${stage} NAME_WE)
	file(STRINGS ${stage} needs REGEX "^# needs: .*limit=[0-9]+")
	string(REGEX REPLACE ".*limit=([0-9]+).*" "\\1" limit "${needs}")
	rlv_add_test(vm.${name} vm ${stage})
	math(EXPR limit "${limit} + 60")
	set_tests_properties(vm.${name} PROPERTIES RUN_SERIAL ON TIMEOUT ${limit})
	set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${stage})
endforeach()

file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/learn/test_*.py)
foreach(test ${tests})
	get_filename_component(name ${test} NAME_WE)
	rlv_add_test(learn.${name} learn ${PROJECT_SOURCE_DIR}/python/tests/run ${PROJECT_BINARY_DIR} ${test})
	set_tests_properties(learn.${name} PROPERTIES RUN_SERIAL ON TIMEOUT 1800)
endforeach()
set_tests_properties(learn.test_cartpole PROPERTIES TIMEOUT 1600) # a little more than it gives itself
# Their environment has gymnasium and torch, without which cases of these are skipped; CUDA it has not.
foreach(name test_arrays test_autoreset test_batch test_readme test_signature test_vector)
	rlv_add_test(learn.${name} learn ${PROJECT_SOURCE_DIR}/python/tests/run ${PROJECT_BINARY_DIR}
		${PROJECT_SOURCE_DIR}/python/tests/${name}.py)
endforeach()
set_property(TEST learn.test_arrays APPEND PROPERTY ENVIRONMENT "PYTEST_ADDOPTS=-k 'not pinned_memory'")

# What pip makes of the tree; tests/wheel/test_*.py beside the wheel itself.
rlv_add_test(wheel.install wheel ${PROJECT_SOURCE_DIR}/tools/wheel)
rlv_add_test(wheel.test_embed_only wheel ${PROJECT_SOURCE_DIR}/python/tests/run ${PROJECT_BINARY_DIR}
	${PROJECT_SOURCE_DIR}/tests/wheel/test_embed_only.py)
set_tests_properties(wheel.install wheel.test_embed_only PROPERTIES RUN_SERIAL ON TIMEOUT 1800)
set_property(TEST wheel.install APPEND PROPERTY ENVIRONMENT "PYTEST_ADDOPTS=-s -p support.cases")

file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/[0-9]*.c)
foreach(example ${examples})
	get_filename_component(name ${example} NAME_WE)
	add_executable(example-${name} ${example})
	target_link_libraries(example-${name} PRIVATE relive relive_flags)
	rlv_add_test(examples.${name} examples example-${name})
endforeach()
