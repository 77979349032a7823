import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { createServer } from 'node:net'
import { pino } from 'pino'
import { SMTPServer } from 'smtp-server'
import { newId } from '../../lib/ids.ts'
import {
  claimDueMail,
  eventMailsPerHour,
  MailRecord,
  queueEventMail,
  queueMail,
} from '../../models/identity/mails.ts'
import { suppress } from '../../models/mail/suppressions.ts'
import { startMailer } from '../../worker/mailer.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'

// Accepted mail is sent by SMTP although a worker is killed. The stack's own worker is stopped during these tests.

const log = pino({ level: 'silent' })
const got: string[] = []
let refusing = false
let server: SMTPServer
let url: string

beforeAll(async () => {
  await platform.stop('worker')
  server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onData: (stream, _session, done) => {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        if (!refusing) got.push(Buffer.concat(chunks).toString())
        done(refusing ? new Error('450 come again') : null)
      })
    },
  })
  const free = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => free.once('listening', resolve))
  const { port } = free.address() as { port: number }
  await new Promise((resolve) => free.close(resolve))
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', () => resolve()))
  url = `smtp://127.0.0.1:${port}`
})
afterAll(async () => {
  await new Promise<void>((resolve) => server.close(() => resolve()))
  await startAll()
})

const settings = () => ({
  KEELSON_SMTP_URL: url,
  KEELSON_MAIL_FROM: 'Keelson <keelson@example.com>',
  KEELSON_MAIL_FOLDER: '/nonexistent',
})
const to = `${newId()}@example.com`
const record = () => MailRecord.findOne({ to }).sort({ created_at: -1 }).lean()
const received = () => got.filter((mail) => mail.includes(to))

test('a mail is sent once although two workers look for it, and its text is deleted', async () => {
  await queueMail({ to, subject: 'Hello', text: 'a link that opens an account' })
  expect(JSON.stringify(await record())).not.toContain('opens an account')
  const mailers = [startMailer(settings(), log), startMailer(settings(), log)]
  await eventually(async () => (await record())?.state === 'sent')
  await Promise.all(mailers.map((mailer) => mailer.stop()))
  expect(received()).toHaveLength(1)
  expect(received()[0]).toMatch(/^From: Keelson <keelson@example.com>\r\nTo: .*\r\nSubject: Hello\r\n/m)
  expect(await record()).toMatchObject({ text_sealed: '-', expires_at: expect.any(Date) })
})

test('a mail that the server does not accept is retried with growing delays', async () => {
  refusing = true
  await queueMail({ to, subject: 'Again', text: 'x' })
  const mailer = startMailer(settings(), log)
  await eventually(async () => (await record())?.tries === 1)
  const { state, due_at, created_at } = (await record()) ?? {}
  expect(state).toBe('waiting')
  expect(Number(due_at) - Number(created_at)).toBeGreaterThanOrEqual(10_000)
  refusing = false
  await MailRecord.updateOne({ to, state: 'waiting' }, { $set: { due_at: new Date() } })
  await eventually(async () => (await record())?.state === 'sent')
  await mailer.stop()
  expect(received().filter((mail) => mail.includes('Subject: Again'))).toHaveLength(1)
})

test('another worker sends a mail whose worker was killed, once the mail is due again', async () => {
  await queueMail({ to, subject: 'Killed', text: 'x' })
  // A killed worker leaves a mail that is claimed, and neither sent nor given up.
  await MailRecord.updateOne(
    { to, state: 'waiting' },
    { $set: { tries: 1, due_at: new Date(Date.now() + 500) } },
  )
  const mailer = startMailer(settings(), log)
  await eventually(async () => (await record())?.state === 'sent')
  await mailer.stop()
  expect(await record()).toMatchObject({ tries: 2 })
})

test('a suppressed address gets no mail, and its waiting mail is not sent either', async () => {
  const gone = `${newId()}@example.com`
  await queueMail({ to: gone, subject: 'Waiting', text: 'a link that opens an account' })
  await suppress([gone.toUpperCase()], { reason: 'complaint', detail: null })
  const mailer = startMailer(settings(), log)
  const settled = await eventually(() => MailRecord.findOne({ to: gone, state: { $ne: 'waiting' } }).lean())
  await mailer.stop()
  expect(settled).toMatchObject({ state: 'suppressed', text_sealed: '-', expires_at: expect.any(Date) })
  expect(got.filter((mail) => mail.includes(gone))).toEqual([])
})

test('the mails of accounts are sent before those of events, of which a tenant gets 100 in an hour', async () => {
  const tenant = newId()
  const told = { to, subject: 'An event', text: 'x' }
  const queued: boolean[] = []
  for (let n = 0; n <= eventMailsPerHour; n++) queued.push(await queueEventMail(tenant, told))
  expect([queued.filter(Boolean).length, queued.at(-1)]).toEqual([100, false])
  expect(await queueEventMail(newId(), told)).toBe(true)
  await queueMail({ to, subject: 'An invitation', text: 'x' })
  expect([await claimDueMail(), await claimDueMail()]).toMatchObject([
    { subject: 'An invitation' },
    { subject: 'An event' },
  ])
  const earlier = new Date(Date.now() - 61 * 60_000)
  await MailRecord.updateMany({ event_of: tenant }, { $set: { created_at: earlier } })
  expect(await queueEventMail(tenant, told)).toBe(true)
  await MailRecord.deleteMany({ to, state: 'waiting' })
})
