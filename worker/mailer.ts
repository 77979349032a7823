import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { createTransport } from 'nodemailer'
import type { Logger } from '../lib/log.ts'
import { claimDueMail, type ClaimedMail, settleMail } from '../models/identity/mails.ts'
import { isSuppressed } from '../models/mail/suppressions.ts'

export interface MailerSettings {
  KEELSON_SMTP_URL?: string | undefined
  KEELSON_MAIL_FROM: string
  KEELSON_MAIL_FOLDER: string
}

// Short enough for a person who waits for an invitation.
const lookEveryMs = 1_000

/**
 * Sends the mails of models/identity/mails.ts. A worker killed between sending and recording sends again: a mail may
 * arrive twice, but is never lost. Several workers share the work, mail by mail.
 */
export function startMailer(settings: MailerSettings, log: Logger): { stop: () => Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping
  const send = sender(settings, log)

  async function run(): Promise<void> {
    while (!signal.aborted) {
      const mail = await claimDueMail().catch((error: unknown) => {
        log.warn({ err: error }, 'due mail could not be read')
        return null
      })
      if (mail) await deliver(mail)
      else await setTimeout(lookEveryMs, undefined, { signal }).catch(() => undefined)
    }
  }

  async function deliver(mail: ClaimedMail): Promise<void> {
    const ids = { mail_id: mail.id, tries: mail.tries }
    try {
      if (await isSuppressed(mail.to)) {
        await settleMail(mail.id, 'suppressed')
        log.info(ids, 'mail not sent: its address gets no more mail')
        return
      }
      await send(mail)
      await settleMail(mail.id, 'sent')
      log.info(ids, 'mail sent')
    } catch (error) {
      const left = mail.triesLeft
      log[left ? 'warn' : 'error'](
        { err: error, ...ids },
        left ? 'mail not sent; it is tried again' : 'mail given up',
      )
      if (!left) await settleMail(mail.id, 'failed').catch(() => undefined) // the mail is claimed again
    }
  }

  const running = run()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}

/**
 * Sends by SMTP. Without a server, writes the mail to a file that only this user can read, so that a development machine
 * is usable: its links open accounts, and have no place in a log.
 */
function sender(
  { KEELSON_SMTP_URL: url, KEELSON_MAIL_FROM: from, KEELSON_MAIL_FOLDER: folder }: MailerSettings,
  log: Logger,
) {
  if (!url) {
    return async ({ id, to, subject, text }: ClaimedMail): Promise<void> => {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      const file = join(folder, `${id}.txt`)
      await writeFile(file, `To: ${to}\nSubject: ${subject}\n\n${text}`, { mode: 0o600 })
      log.info({ mail_id: id, file }, 'mail written to a file, since no SMTP server is set')
    }
  }
  const transport = createTransport(url)
  return async ({ id, to, subject, text }: ClaimedMail): Promise<void> => {
    await transport.sendMail({ from, to, subject, text, messageId: `<${id}@keelson>` })
  }
}
