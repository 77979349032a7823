import { afterAll, beforeAll } from '@jest/globals'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import '../../models/index.ts'
import { engine } from './engine.ts'
import { removeInsertedHosts } from './inserted-hosts.ts'
import { startAll } from './platform.ts'
import { removeRows } from './rows.ts'
import { stackSettings } from './stack.ts'
import { removeTenants } from './tenants.ts'

// Hooks around each file of end-to-end tests.

beforeAll(() => connectDatabase(stackSettings()))

afterAll(async () => {
  engine.endWatches()
  try {
    await startAll()
    await removeRows()
    await removeInsertedHosts()
    await removeTenants()
  } finally {
    await disconnectDatabase()
  }
})
