import { afterAll, beforeAll } from '@jest/globals'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { eventually } from './eventually.ts'
import '../../models/index.ts'
import { endOfFile } from './end-of-file.ts'
import { removeDatabaseRecords } from './database-records.ts'
import { removeInsertedHosts } from './inserted-hosts.ts'
import { startAll } from './platform.ts'
import { removeRows } from './rows.ts'
import { stackSettings } from './stack.ts'
import { removeTenants } from './tenants.ts'

// Hooks around each file of end-to-end tests.

// The program gives up after 5 s; a test's process may be as long without processor time while it loads.
beforeAll(() => eventually(() => connectDatabase(stackSettings()).then(() => true)))

afterAll(async () => {
  await endOfFile()
  try {
    await startAll()
    await removeRows()
    await removeDatabaseRecords()
    await removeInsertedHosts()
    await removeTenants()
  } finally {
    await disconnectDatabase()
  }
})
