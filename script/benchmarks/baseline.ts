import { createHmac } from 'node:crypto'
import express from 'express'
import { MongoClient } from 'mongodb'

// The API's reference: a minimal handwritten server for `GET /containers/{id}` with the same checks: the session by its
// token's keyed hash, the active user with the permission, and the tenant's container.

const [mongodbUrl = '', port = ''] = process.argv.slice(2)
const key = Buffer.from(process.env['HASH_KEY'] ?? '', 'base64')
const client = await MongoClient.connect(mongodbUrl)
const db = client.db()
const sessions = db.collection<{ _id: string; user_id: string; tenant_id: string; expires_at: Date }>(
  'sessions',
)
const users = db.collection<{ _id: string; tenant_id: string; disabled: boolean; roles: string[] }>('users')
const containers = db.collection<{ _id: string; tenant_id: string; config_vars_sealed?: string }>(
  'containers',
)
const mayRead = new Set(['owner', 'admin', 'developer', 'viewer'])

const app = express()
app.get('/api/v1/containers/:id', async (request, response) => {
  const token = request.headers.authorization?.replace(/^Bearer /, '') ?? ''
  const session = await sessions.findOne({ _id: createHmac('sha256', key).update(token).digest('base64url') })
  if (!session || session.expires_at.getTime() < Date.now()) return response.status(401).json({ status: 401 })
  const user = await users.findOne({ _id: session.user_id, tenant_id: session.tenant_id })
  if (!user || user.disabled) return response.status(401).json({ status: 401 })
  if (!user.roles.some((role) => mayRead.has(role))) return response.status(403).json({ status: 403 })
  const container = await containers.findOne({ _id: request.params.id, tenant_id: user.tenant_id })
  if (!container) return response.status(404).json({ status: 404 })
  const { _id, config_vars_sealed: _, ...shown } = container
  return response.json({ id: _id, ...shown })
})
app.listen(Number(port), '127.0.0.1', () => console.log('ready'))
