# jemalloc over registered memory: relive_arena for the daemons, librelive-jemalloc.so for programs.
# librelive knows nothing of it. A sanitizer is an allocator of its own, so not in those builds.
if(NOT JEMALLOC_FOUND OR RLV_INSTRUMENTED OR RLV_FUZZ)
	return()
endif()

rlv_sources(arena base/jemalloc)
add_library(relive_arena STATIC ${arena})
target_link_libraries(relive_arena PUBLIC relive_base PkgConfig::JEMALLOC)

rlv_sources(dma client/jemalloc)
add_library(relive_jemalloc SHARED ${dma})
target_link_libraries(relive_jemalloc PRIVATE relive_arena relive_flags PUBLIC relive)
target_include_directories(relive_jemalloc INTERFACE ${PROJECT_SOURCE_DIR}/include)
set_target_properties(relive_jemalloc PROPERTIES OUTPUT_NAME relive-jemalloc
	VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${PROJECT_SOURCE_DIR}/librelive.map)
target_link_options(relive_jemalloc PRIVATE -Wl,-z,defs
	-Wl,--version-script=${PROJECT_SOURCE_DIR}/librelive.map)
configure_file(relive-jemalloc.pc.in relive-jemalloc.pc @ONLY)
install(TARGETS relive_jemalloc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/relive-jemalloc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(BUILD_TESTING AND CMOCKA_FOUND)
	set(jemalloc_tests arena dma)
	if(VERBS_FOUND)
		list(APPEND jemalloc_tests arena_target)
	endif()
	foreach(test ${jemalloc_tests})
		add_executable(unit_test_${test} ${PROJECT_SOURCE_DIR}/tests/unit/jemalloc/test_${test}.c)
		target_link_libraries(unit_test_${test} PRIVATE relive_flags PkgConfig::CMOCKA
			PkgConfig::JEMALLOC)
		add_dependencies(tests_unit unit_test_${test})
		rlv_add_test(unit.test_${test} unit unit_test_${test})
	endforeach()
	target_link_libraries(unit_test_arena PRIVATE relive_arena)
	if(VERBS_FOUND)
		target_link_libraries(unit_test_arena_target PRIVATE relive_support relive_transport
			relive_arena)
	endif()
	target_link_libraries(unit_test_dma PRIVATE relive_jemalloc relive)
endif()
