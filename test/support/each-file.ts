import { relative, resolve } from 'node:path'
import { afterAll, beforeAll, expect } from '@jest/globals'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { eventually } from './eventually.ts'
import '../../models/index.ts'
import { endOfFile } from './end-of-file.ts'
import { isExclusive } from './exclusive-files.ts'
import { removeApplicationRecords } from './application-records.ts'
import { removeDatabaseRecords } from './database-records.ts'
import { removeInsertedHosts } from './inserted-hosts.ts'
import { startAll } from './platform.ts'
import { removeRows } from './rows.ts'
import { removeFromShared, removeSharedServer } from './shared-server.ts'
import { stackSettings } from './stack.ts'
import { removeTenants } from './tenants.ts'

// Hooks around each file of end-to-end tests.

// The program gives up after 5 s; a test's process may be as long without processor time while it loads.
beforeAll(() => eventually(() => connectDatabase(stackSettings()).then(() => true)))

// A run of jest may have files of both kinds, as a plain `jest` has.
beforeAll(async () => {
  const file = relative(resolve(import.meta.dirname, '..'), expect.getState().testPath ?? '')
  if (isExclusive(file)) await removeSharedServer()
})

afterAll(async () => {
  await endOfFile()
  try {
    await startAll()
    await removeRows()
    await removeDatabaseRecords()
    await removeApplicationRecords()
    await removeInsertedHosts()
    await removeFromShared()
    await removeTenants()
  } finally {
    await disconnectDatabase()
  }
})
